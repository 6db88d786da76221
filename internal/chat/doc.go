// Package chat turns conversations into prompts and generated tokens into text,
// with the files that a model's checkpoint brings along.
//
// Start with [Load], which makes a [Processor] from the files of a model card.
// [Processor.RenderChat] and [Processor.EncodeChat] turn messages into token ids. A
// [Detokenizer] turns token ids into text and finds stop strings.
//
// A Processor is immutable after Load and safe for concurrent use. A Detokenizer belongs
// to one sequence and one goroutine. The package starts no goroutines.
//
// The package does not deal with HTTP, workers or engines, and it does not read files
// itself. Package parse handles tool calls and reasoning in generated text;
// [Processor.Formats] names the formats in which the model writes them. The package never
// runs code of a checkpoint: package jinja interprets templates, within limits.
package chat
