package embedded

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
)

func TestZapLogger(t *testing.T) {
	tests := []struct {
		name    string
		write   func(*zap.Logger)
		closing bool
		want    string // "" means nothing at warn or above
	}{
		{"info is dropped", func(l *zap.Logger) { l.Info("started") }, false, ""},
		{"warning with fields", func(l *zap.Logger) {
			l.With(zap.String("member-id", "a1")).Warn("slow disk", zap.Int("took-ms", 7), zap.Error(errors.New("oops")))
		}, false, `level=WARN msg="slow disk" member_id=a1 took_ms=7 error=oops`},
		{"error", func(l *zap.Logger) { l.Error("broken") }, false, `level=ERROR msg=broken`},
		{"expected warning", func(l *zap.Logger) { l.Warn("check file permission") }, false, ""},
		{"expected warning of a member", func(l *zap.Logger) {
			l.Warn("8bfbfe6afa39eae8 cannot campaign at term 2 since there are still pending configuration changes to apply")
		}, false, ""},
		{"many who are refused", func(l *zap.Logger) {
			for range 1000 {
				l.Warn("rejected connection on client endpoint", zap.String("remote-addr", "10.0.0.9:1"))
			}
		}, false, `level=WARN msg="a client without the cluster's credentials was turned away" remote_addr=10.0.0.9:1 text="rejected connection on client endpoint" others_since_the_last_told=0`},
		{"error while closing", func(l *zap.Logger) { l.Error("accept failed") }, true, ""},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			var out bytes.Buffer
			log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{
				Level: slog.LevelWarn,
				ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
					if a.Key == slog.TimeKey {
						return slog.Attr{}
					}
					return a
				},
			}))
			tc.write(newZapLogger(log, func() bool { return tc.closing }, nil, (&life{log: log}).turnAway))
			if got := strings.TrimSpace(out.String()); got != tc.want {
				t.Errorf("log: got %q, want %q", got, tc.want)
			}
		})
	}
}

// The process must survive what etcd considers the end of the process.
func TestZapLoggerEndsOnlyTheGoroutine(t *testing.T) {
	for name, write := range map[string]func(*zap.Logger, string, ...zap.Field){
		"fatal": (*zap.Logger).Fatal,
		"panic": (*zap.Logger).Panic,
	} {
		t.Run(name, func(t *testing.T) {
			fatal := make(chan error, 1)
			ended := make(chan struct{})
			returned := false
			go func() {
				defer close(ended)
				l := newZapLogger(slog.New(slog.DiscardHandler), func() bool { return false }, func(err error) { fatal <- err }, nil)
				write(l, "failed to open WAL", zap.Error(errors.New("disk full")))
				returned = true
			}()
			<-ended
			if returned {
				t.Error("the failing goroutine went on")
			}
			if got, want := (<-fatal).Error(), "failed to open WAL: disk full"; got != want {
				t.Errorf("reported: got %q, want %q", got, want)
			}
		})
	}
}

// Of those who are turned away one is told every minute, with the number of the others.
func TestTurnAway(t *testing.T) {
	var out bytes.Buffer
	l := &life{log: slog.New(slog.NewTextHandler(&out, nil))}
	for s := range 121 {
		l.turnAway(time.Unix(int64(s), 0))
	}
	got := strings.Count(out.String(), "turned away")
	if got != 3 || strings.Count(out.String(), "others_since_the_last_told=59") != 2 {
		t.Errorf("told %d times:\n%s", got, out.String())
	}
}
