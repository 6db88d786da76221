package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"
)

// life is the life cycle of a server: it ends by Close, or when the server stops by
// itself.
type life struct {
	dir    string
	lock   *dirLock
	log    *slog.Logger
	fatal  chan error    // capacity 1: the server wanted to end the process
	stop   chan struct{} // closed by Close
	done   chan struct{} // closed when the server has stopped, for whatever reason
	once   sync.Once
	closed error // of Close
	err    error // why it stopped by itself; set before done is closed

	turnedAway turnedAway
}

// turnedAway counts connections that ended before they were authenticated. Anyone can
// open any number of them, so only a few are logged.
type turnedAway struct {
	mu    sync.Mutex
	told  time.Time
	since int // number not logged since the last log entry
}

// tellEvery is the interval between log entries about such connections.
const tellEvery = time.Minute

// turnAway logs such a connection, unless one was logged within tellEvery.
func (l *life) turnAway(now time.Time, attrs ...slog.Attr) {
	t := &l.turnedAway
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.told.IsZero() && now.Sub(t.told) < tellEvery {
		t.since++
		return
	}
	attrs = append(attrs, slog.Int("others_since_the_last_told", t.since))
	t.told, t.since = now, 0
	l.log.LogAttrs(context.Background(), slog.LevelWarn, "a client without the cluster's credentials was turned away", attrs...)
}

// start makes a server on its directory, which stays locked until close. With anyPort, it
// tries further ports if another process takes the first one.
func start[S any](ctx context.Context, what, dir string, log *slog.Logger, anyPort bool, run func(*life) (S, error)) (S, error) {
	var none S
	lock, err := prepareDir(dir)
	if err != nil {
		return none, fmt.Errorf("start %s: %w", what, err)
	}
	if err := lock.acquire(ctx); err != nil {
		lock.release()
		return none, fmt.Errorf("start %s: %w", what, err)
	}
	for attempt := 1; ; attempt++ {
		l := &life{dir: dir, lock: lock, log: log, fatal: make(chan error, 1), stop: make(chan struct{}), done: make(chan struct{})}
		s, err := run(l)
		if err == nil {
			return s, nil
		}
		if anyPort && errors.Is(err, ErrPortInUse) && attempt < portAttempts {
			continue
		}
		lock.release()
		return none, fmt.Errorf("start %s: %w", what, err)
	}
}

func anyPort(addr string) bool {
	_, port, err := net.SplitHostPort(addr)
	return err == nil && port == "0"
}

// fail reports that the server cannot continue. The first reason is kept.
func (l *life) fail(err error) {
	select {
	case l.fatal <- err:
	default:
	}
}

// closing reports whether Close was called.
func (l *life) closing() bool {
	select {
	case <-l.stop:
		return true
	default:
		return false
	}
}

// close stops the server by calling f, once, and releases its directory.
func (l *life) close(f func() error) error {
	l.once.Do(func() {
		l.closed = f()
		l.lock.release()
	})
	return l.closed
}

// Done returns a channel that is closed when the server has stopped, by Close or by
// itself.
func (l *life) Done() <-chan struct{} { return l.done }

// Err returns why the server stopped by itself, once Done is closed; it is nil
// after Close.
func (l *life) Err() error {
	select {
	case <-l.done:
		return l.err
	default:
		return nil
	}
}
