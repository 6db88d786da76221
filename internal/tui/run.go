package tui

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/dynctl/dynctl/internal/tui/cells"
	"github.com/dynctl/dynctl/internal/tui/draw"

	tea "github.com/charmbracelet/bubbletea"

	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
)

// framesPerSecond caps drawing; frames equal to the last are not written at all.
const framesPerSecond = 10

// Run shows the snapshots of source until the user leaves or ctx ends, which
// returns the cause. The terminal is as before when Run returns, whatever
// happened, and every goroutine has ended. The source stays open.
func Run(ctx context.Context, source client.Source, opts Options) error {
	if err := opts.Validate(); err != nil {
		return err
	}
	opts = opts.withDefaults()
	if opts.Out == nil {
		opts.Out = os.Stdout
	}
	// Commands end with the program, which outlives ctx by its way out: a program
	// that is killed through its context would leave its reader of keys behind.
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	cmds := &commander{ctx: inner, stop: ctx.Done(), now: opts.Now}
	defer cmds.wait()
	defer cancel()

	m := newModel(source, cmds, draw.ThemeFor(opts.Theme, opts.Color, opts.Out), opts, paneTable())
	settings := []tea.ProgramOption{tea.WithOutput(opts.Out), tea.WithAltScreen(), tea.WithFPS(framesPerSecond)}
	if opts.In != nil {
		settings = append(settings, tea.WithInput(opts.In))
	}
	program := tea.NewProgram(m, settings...)
	_, err := program.Run()
	switch {
	case err == nil && ctx.Err() != nil:
		return context.Cause(ctx)
	case err == nil, errors.Is(err, tea.ErrInterrupted):
		return nil
	case !errors.Is(err, tea.ErrProgramKilled):
		// The program failed while it took the terminal over; it restores
		// what it changed only on its own way out.
		_ = program.ReleaseTerminal()
	}
	return fmt.Errorf("run the screen: %w", err)
}

// Render draws one screen of the given size, without a terminal: for --once -o
// screen, for documents and for tests. It is drawn as of the snapshot's own time
// and, unless opts.Color is ColorAlways, without escape sequences.
func Render(s cluster.Snapshot, width, height int, opts Options) string {
	t := draw.PlainTheme()
	if opts.Color == ColorAlways {
		t = draw.ThemeFor(opts.Theme, opts.Color, nil)
	}
	m := newModel(nil, nil, t, opts, paneTable())
	m.shown.Width, m.shown.Height = cells.Clamp(width, 0, maxSize), cells.Clamp(height, 0, maxSize)
	m.take(snapshotMsg{s, s.Time})
	m.feed.now = s.Time
	m.settle()
	return m.View()
}

// maxSize bounds what Render allocates for a mistyped size.
const maxSize = 2000
