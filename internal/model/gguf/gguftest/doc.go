// Package gguftest writes GGUF files for tests.
//
// Start with [Builder]; [Quantize] makes blocks of weights. The files are what the
// format says, and wrong ones where a test asks for that.
//
// It owns nothing. The quantization is the simplest that fits the layout: it loses
// more than that of ggml, and nothing here depends on how much.
package gguftest
