// Package ggufmodel presents a GGUF file as the Hugging Face folder that it was
// made of: config.json and the other small files, and tensors under their names
// there.
//
// Start with [Open] and [Checkpoint]. What an architecture calls its keys and
// tensors is data, in arch.go and the tables beside it.
//
// A Checkpoint owns the mapping until Close. Tensors are the mapping itself, the
// blocks of quantized matrices included; those whose rows are reordered are copied at
// their first use, in their type, and kept in memory until then. So are vectors whose
// values change, as float32. Everything may be used by many goroutines at once.
//
// It knows names, not arithmetic: whether the result can be served is decided by
// internal/model, which reads it as it reads any other checkpoint.
package ggufmodel
