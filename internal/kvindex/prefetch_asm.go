//go:build amd64 || arm64

package kvindex

// prefetch asks the processor for the first n lines, without waiting for them.
//
//go:noescape
func prefetch(lines *[batchSize]*bucket, n int)
