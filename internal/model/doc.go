// Package model opens checkpoints: it reads config.json into a [Config] that is
// the same for all families, maps the weights, and proves that the two fit before
// anyone computes with them. Weights are safetensors, or a GGUF file, which holds
// everything else as well.
//
// Start with [Open] and [Model], or with [Examine] to learn all that is wrong;
// [Synthetic] writes checkpoints with random weights, and [Builtin] the small trained
// model that every dynamod carries. With Options.Quantize matrices become smaller ones:
// [Model.Prepare] makes them, or maps those of an earlier start.
//
// A Model owns the mappings until Close; everything it returns is read-only and
// may be used by many goroutines at once. A weight file that is shortened while
// it is mapped makes reads fault: [Model.Check] tells. Quantized matrices of a GGUF
// file stay quantized. Those whose rows are reordered are copied at their first use
// and kept in memory: [Model.CopiedBytes] is how much that takes.
//
// A family is a declarative value in its own file (family_llama.go), never code
// that computes; traits.go has what several share, and docs/models.md lists them.
// This package computes with no weights, runs no code from a checkpoint, and does not
// tokenize.
package model
