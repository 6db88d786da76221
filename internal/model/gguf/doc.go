// Package gguf reads GGUF files: typed key-value pairs and tensors, many of them
// in blocks of quantized weights.
//
// Start with [Open] and [File]; [ParseHeader] is the parser alone, and
// [Dequantize] turns blocks into float32.
//
// A [File] owns its mapping and its open file until Close; the tensors' Data point
// into the mapping and die with it. Everything may be read by many goroutines at
// once. A file that shrinks under its mapping makes reads fault: its CheckSize
// tells whether that happened.
//
// The reader refuses every malformed header by name, and allocates no more than the
// file itself can fill. It knows the format and nothing of models: which key means
// what is the business of internal/model and internal/model/ggufvocab.
package gguf
