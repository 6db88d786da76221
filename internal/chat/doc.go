// Package chat turns conversations into prompts and generated tokens into text,
// with the files that a model's checkpoint brings along.
//
// Start with [Load], which makes a [Processor] of the files in a model card;
// [Processor.RenderChat] and [Processor.EncodeChat] lead from messages to token
// ids, a [Detokenizer] leads from token ids to text and finds stop strings.
//
// A Processor never changes after Load and is safe for concurrent use. A
// Detokenizer belongs to one sequence and one goroutine. The package starts no
// goroutines.
//
// It knows nothing of HTTP, workers or engines and does not read files itself. Tool
// calls and reasoning in the generated text are package parse's; [Processor.Formats]
// says in which formats the model writes them. It never runs code of a checkpoint: templates are interpreted under the limits of package
// jinja.
package chat
