// Package parse takes the text that a model generates apart: what it thinks, what
// it says, and which tools it calls.
//
// Start with [New], which makes a [Parser] of the names of two formats, one for
// tool calls and one for reasoning; [Detect] finds these names for a chat template.
// [Parser.Feed] takes text as it is generated and returns [Event]s,
// [Parser.Finish] what was held back at the end.
//
// A Parser belongs to one sequence and one goroutine. It reads byte by byte, so
// that the events say the same however the text was cut into pieces. Text is held
// back only while it may be the beginning of a mark, or of a call whose name is not
// known yet. What turns out to be no call comes out as the text that it was; a call
// that breaks off after it was announced stays, marked as broken.
//
// The package starts no goroutines and knows nothing of tokens, templates or HTTP.
// It does not check arguments against their schema: it uses schemas only where a
// format leaves the types of values open.
package parse
