// Package minitok is the small byte-level BPE tokenizer of synthetic
// checkpoints, with the chat template that the built-in model has, too.
//
// Start with [Load]; it cuts the vocabulary to the wanted size and gives the
// files of a checkpoint folder and what each token is.
//
// Everything is plain data: nothing owns anything, and values may be read by many
// goroutines. The merges were trained by the program in train over a text
// written for this purpose; `go generate` repeats that.
//
// It does not encode or decode text: internal/tokenizer does, from these files.
package minitok

//go:generate go run ./train
