package embedded

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// expected lists warnings and errors that healthy single-member servers log.
var expected = []string{
	"Running http and grpc server on single port", // there is one port by design
	"simple token is not cryptographically signed",
	"check file permission",            // the directory belongs to the user
	"Failed to detect schema version",  // for an empty directory
	"failed to update storage version", // for an empty directory
	// A slow member may reach its first election before it has applied its own
	// membership. It campaigns again at the next one. The message begins with its id.
	"cannot campaign at term",
}

// newZapLogger returns a logger that passes warnings and errors on to log; while closing,
// only as debug entries. A Fatal or Panic entry goes to fatal in place of ending the
// process, and ends only the goroutine that wrote it. Refused clients go to turnAway.
func newZapLogger(log *slog.Logger, closing func() bool, fatal func(error), turnAway func(time.Time, ...slog.Attr)) *zap.Logger {
	hook := fatalHook(fatal)
	return zap.New(zapCore{log: log, closing: closing, turnAway: turnAway}, zap.WithFatalHook(hook), zap.WithPanicHook(hook))
}

type fatalHook func(error)

// OnWrite implements [zapcore.CheckWriteHook].
func (h fatalHook) OnWrite(ce *zapcore.CheckedEntry, fields []zapcore.Field) {
	text := ce.Message
	for _, f := range fields {
		if f.Type == zapcore.ErrorType {
			text += fmt.Sprintf(": %v", f.Interface)
		}
	}
	h(fmt.Errorf("%s", text))
	runtime.Goexit()
}

// zapCore writes zap entries to a slog logger.
type zapCore struct {
	log      *slog.Logger
	closing  func() bool
	turnAway func(time.Time, ...slog.Attr)
}

// Enabled implements [zapcore.LevelEnabler].
func (c zapCore) Enabled(level zapcore.Level) bool { return level >= zapcore.WarnLevel }

// With implements [zapcore.Core].
func (c zapCore) With(fields []zapcore.Field) zapcore.Core {
	return zapCore{log: slog.New(c.log.Handler().WithAttrs(attrs(fields))), closing: c.closing, turnAway: c.turnAway}
}

// Check implements [zapcore.Core].
func (c zapCore) Check(entry zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(entry.Level) {
		return ce.AddCore(entry, c)
	}
	return ce
}

// Write implements [zapcore.Core].
func (c zapCore) Write(entry zapcore.Entry, fields []zapcore.Field) error {
	level := slog.LevelWarn
	if strings.HasPrefix(entry.Message, "rejected connection on ") {
		c.turnAway(entry.Time, append(attrs(fields), slog.String("text", entry.Message))...)
		return nil
	}
	switch {
	case c.closing(), slices.ContainsFunc(expected, func(s string) bool { return strings.Contains(entry.Message, s) }):
		level = slog.LevelDebug
	case entry.Level >= zapcore.ErrorLevel:
		level = slog.LevelError
	}
	//nolint:sloglint // the messages are constants of etcd
	c.log.LogAttrs(context.Background(), level, entry.Message, attrs(fields)...)
	return nil
}

// Sync implements [zapcore.Core].
func (c zapCore) Sync() error { return nil }

// attrs translates fields by letting zap encode them into a map.
func attrs(fields []zapcore.Field) []slog.Attr {
	list := make([]slog.Attr, 0, len(fields))
	for _, f := range fields {
		enc := zapcore.NewMapObjectEncoder()
		f.AddTo(enc)
		for key, value := range enc.Fields {
			list = append(list, slog.Any(strings.ReplaceAll(key, "-", "_"), value))
		}
	}
	return list
}
