// Package tui is the screen behind "dynctl top": it shows snapshots of a cluster
// in six panes and asks the source to drain or resume workers.
//
// Start with [Run], the interactive program; [Render] draws one screen without a
// terminal, [Tables] and [WriteTable] give the same data as plain text.
//
// Run owns the terminal and every goroutine it starts, and gives both back before
// it returns. The model is touched only by the program's own loop: commands do
// the waiting and the I/O and report by message, so that drawing reads fields
// alone and knows neither a clock nor a file. Layout, key map and columns are
// data; colors, glyphs and cells live in one place each. The functions without a
// terminal are safe to call at the same time.
//
// It deliberately fetches nothing itself, keeps no history beyond the newest
// snapshot, and never acts on a worker without a confirmed dialog.
package tui
