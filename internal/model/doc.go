// Package model opens checkpoints. It reads config.json into a [Config] in the same form
// for all families, maps the weights, and checks that both fit before an engine uses
// them. Weights are safetensors, or a GGUF file, which also holds everything else.
//
// Start with [Open] and [Model], or with [Examine] to get all errors of a checkpoint.
// [Synthetic] writes checkpoints with random weights, and [Builtin] the small trained
// model that every dynamod contains. Options.Quantize makes matrices smaller:
// [Model.Prepare] quantizes them, or maps those of an earlier start.
//
// A Model owns the mappings until Close. Everything it returns is read-only and safe for
// concurrent use. If a weight file is truncated while it is mapped, reads fault;
// [Model.Check] detects that. Quantized matrices of a GGUF file stay quantized. Matrices
// whose rows must be reordered are copied at their first use and kept in memory:
// [Model.CopiedBytes] returns their size.
//
// A family is a declarative value in its own file (family_llama.go) and contains no
// arithmetic. traits.go holds features that several families share; docs/models.md lists
// the families. This package does not compute with weights, runs no code from a
// checkpoint, and does not tokenize.
package model
