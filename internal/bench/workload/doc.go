// Package workload makes the conversations of a load: how long prompts and answers are, what
// prompts share, and their text.
//
// A [Source] gives conversation i, the same for the same seed; [Synthetic] draws lengths,
// [Trace] replays a trace. Prompts are pieces of endless texts ([Part]): those that begin
// alike have the same first parts. [Scale] turns tokens into words, as a server's tokenizer
// counts them.
package workload
