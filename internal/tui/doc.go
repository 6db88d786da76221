// Package tui is the screen behind "dynctl top": it shows snapshots of a cluster in panes and
// asks the source to drain or resume workers.
//
// Start with [Run], the interactive program; [Render] draws one screen without a terminal,
// [Tables] and [WriteTable] give the same data as plain text.
//
// This package is the frame. It owns the terminal, the focus, the sizes, the snapshot and the
// keys. The parts are packages below, so that a part cannot reach the frame or its neighbors:
//
//	pane    the boxes of the screen, each with its rows, their order and their filter
//	detail  the screens that enter opens
//	moment  what all of them read: the snapshot, its age, and how it reads
//	table   rows and columns
//	layout  where panes stand, a pure function
//	plain   panes as text
//	draw    cells, colors and signs
//	cells   text measured in cells
//
// To add a pane, write its file in package pane and its line in paneTable. An overlay (a
// question, a text, a typed line) implements overlay; an action on workers is a value in
// actions, and key, command, question and report follow from it.
//
// Run gives the terminal and every goroutine back before it returns. The frame is touched only
// by the program's own loop: commands wait and report by message, so that drawing reads fields
// alone and knows neither a clock nor a file. The functions without a terminal are safe to call
// at the same time.
//
// The package fetches nothing itself, keeps no history beyond the newest snapshot, and never
// acts on a worker without a confirmed dialog.
package tui
