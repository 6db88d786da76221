package config

import (
	"io"
	"log/slog"
)

// SlogLevel returns the level for log/slog; an unknown one counts as info.
func (l Log) SlogLevel() slog.Level {
	switch l.Level {
	case "debug":
		return slog.LevelDebug
	case "warn":
		return slog.LevelWarn
	case "error":
		return slog.LevelError
	}
	return slog.LevelInfo
}

// Handler returns a handler that writes to w in the configured format.
func (l Log) Handler(w io.Writer) slog.Handler {
	opts := &slog.HandlerOptions{Level: l.SlogLevel()}
	if l.Format == "json" {
		return slog.NewJSONHandler(w, opts)
	}
	return slog.NewTextHandler(w, opts)
}
