// Package ggufvocab makes tokenizer.json and tokenizer_config.json of the
// vocabulary keys of a GGUF file, so that everything above reads one format.
//
// Start with [Read]. The result is what the model's Hugging Face folder holds in
// these files, as far as text and tokens go: the same vocabulary and merges, the
// split pattern that the file names, special tokens, and the chat template.
//
// It is a pure function of the keys and owns nothing. It does not tokenize, and it
// refuses by name what it does not know rather than coming near it.
package ggufvocab
