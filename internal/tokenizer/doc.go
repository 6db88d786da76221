// Package tokenizer turns text into token ids and back, from a Hugging Face
// tokenizer.json.
//
// Start with [Load] and [Tokenizer]. [Stream] decodes a sequence while it is being
// generated. The pipeline is the file's: added tokens cut the raw text, the normalizer
// runs on the rest, added tokens cut again, the pre-tokenizer splits, the model (BPE,
// Unigram, WordPiece, WordLevel) returns ids, and the post-processor adds special tokens.
//
// A Tokenizer is immutable after Load and safe for concurrent use. A Stream belongs to
// one goroutine. The package starts no goroutines of its own. A split pattern without a
// hand-written scanner runs in a regular expression engine that keeps a clock goroutine
// for about a second after the last match, to enforce the match timeout.
//
// The package does not render chat templates, does not truncate or pad (such settings in
// the file are ignored), does not report offsets, and does not train. It refuses unknown
// component types by name and never skips them.
package tokenizer
