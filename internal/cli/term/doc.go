// Package term knows the streams of a command: whether they are terminals, how
// wide, whether to use color, and how text is measured, cleaned and cut for them.
//
// Start with [Streams] (where a command reads and writes) and [Palette] (colors
// by meaning).
//
// Streams are plain values made once for each run; nothing here owns a goroutine.
// Writing to the same stream from several goroutines is the caller's to order.
//
// The package draws nothing itself: tables, progress and prompts do.
package term
