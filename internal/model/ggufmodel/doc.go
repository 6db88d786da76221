// Package ggufmodel presents a GGUF file as the Hugging Face folder that it was
// made of: config.json and the other small files, and tensors under their names
// there.
//
// Start with [Open] and [Checkpoint]. What an architecture calls its keys and
// tensors is data, in arch.go and the tables beside it.
//
// A Checkpoint owns the mapping until Close. Tensors of plain types are the mapping
// itself; quantized and reordered ones are made at their first use and kept in
// memory until then, as float32: four bytes a weight, whatever the file needs for
// it. Everything may be used by many goroutines at once.
//
// It knows names, not arithmetic: whether the result can be served is decided by
// internal/model, which reads it as it reads any other checkpoint.
package ggufmodel
