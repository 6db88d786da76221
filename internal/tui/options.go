package tui

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/tui/draw"
)

// Color says whether to use color.
type Color = draw.Color

// The values of [Options.Color].
const (
	ColorAuto   = draw.ColorAuto
	ColorNever  = draw.ColorNever
	ColorAlways = draw.ColorAlways
)

// Themes, as --theme takes them.
const (
	ThemeAuto  = draw.ThemeAuto
	ThemeDark  = draw.ThemeDark
	ThemeLight = draw.ThemeLight
	ThemeMono  = draw.ThemeMono
)

// Themes lists the values of [Options.Theme].
func Themes() []string { return draw.Themes() }

// Options say how the screen looks and what it may do. The zero value works.
type Options struct {
	In  io.Reader // default: standard input, or the controlling terminal if that is redirected
	Out io.Writer // default: standard output

	Theme string // one of Themes; default auto
	Color Color
	ASCII bool // draw with ASCII characters only

	// WhatIf tells, as lines of text, what a change would have done with the load of the last hour; nil: nobody
	// knows. It must return soon after its context ends.
	WhatIf func(context.Context, client.Action) (string, error)

	// ReadOnly switches all actions off, beside what the source refuses.
	ReadOnly bool
	// View is the pane that starts with the focus, one of Views; default workers.
	View string
	// Worker names the worker whose screen opens first, and which Render draws; empty for the panes.
	Worker string
	// Zoom starts with that pane over the whole screen.
	Zoom bool
	// Interval is the interval of the source's snapshots; default one second.
	Interval time.Duration
	// Replay is set when the snapshots are a recording, which a source that is a
	// [client.Playback] can wind.
	Replay *Replay
	// Recording is the name of the file that the snapshots are recorded to, if any.
	Recording string

	// Now is the clock; default time.Now. Location is that of the times on the
	// screen; default UTC.
	Now      func() time.Time
	Location *time.Location
	// Save keeps a screen under a file name; the default writes it to the working
	// directory.
	Save func(name string, text []byte) error
}

func (o Options) withDefaults() Options {
	if o.Interval <= 0 {
		o.Interval = time.Second
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Location == nil {
		o.Location = time.UTC
	}
	if o.Save == nil {
		o.Save = func(name string, text []byte) error { return os.WriteFile(name, text, 0o644) }
	}
	return o
}

// Validate returns an error that names the first value nobody knows.
func (o Options) Validate() error {
	if _, ok := paneNamed(paneTable(), o.View); o.View != "" && !ok {
		return fmt.Errorf("view %q: use %s", o.View, strings.Join(Views(), ", "))
	}
	if o.Theme == "" {
		return nil
	}
	for _, t := range draw.Themes() {
		if t == o.Theme {
			return nil
		}
	}
	return fmt.Errorf("theme %q: use %s", o.Theme, strings.Join(draw.Themes(), ", "))
}
