// Package tokenizer turns text into token ids and back, from a Hugging Face
// tokenizer.json.
//
// Start with [Load] and [Tokenizer]; [Stream] decodes a sequence while it is
// being generated. The pipeline is the file's: added tokens cut the raw text,
// the normalizer runs on what is left, added tokens cut again, the
// pre-tokenizer splits, the model (BPE, Unigram, WordPiece, WordLevel) gives
// ids, the post-processor adds special tokens.
//
// A Tokenizer never changes after Load and may be used by any number of
// goroutines. A Stream belongs to one goroutine. The package starts no
// goroutines of its own; a split pattern without a hand-written scanner runs in
// a regular expression engine that keeps a clock goroutine for about a second
// after the last match, to enforce the match timeout.
//
// It does not render chat templates, does not truncate or pad (such settings in
// the file are ignored), does not report offsets, and does not train. Component
// types it does not know are refused by name, never skipped.
package tokenizer
