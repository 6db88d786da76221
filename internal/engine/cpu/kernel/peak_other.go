//go:build !amd64

package kernel

func peaks() []Peak { return nil }
