package agent

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynctl/dynctl/internal/embedded"
	"github.com/dynctl/dynctl/internal/metrics"
)

// frail is a server that fails when it is told to.
type frail struct {
	done   chan struct{}
	closed int
}

func (f *frail) Done() <-chan struct{} { return f.done }
func (f *frail) Err() error            { return errors.New("no space left on device") }
func (f *frail) Close() error          { f.closed++; return nil }

// A server inside the process that fails is started again until that works.
func TestServerIsStartedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := &frail{done: make(chan struct{})}, &frail{done: make(chan struct{})}
		starts := 0
		al := newAlarms(metrics.NewRegistry(), func() *slog.Logger { return testLog(t) })
		end := keepServer(testLog(t), al, alarmEtcd, first, func(context.Context) (*frail, error) {
			if starts++; starts < 4 {
				return nil, errors.New("no space left on device")
			}
			return second, nil
		})
		close(first.done)
		synctest.Wait()
		if got := al.texts(); len(got) != 1 || !strings.Contains(got[0], "no space left") {
			t.Errorf("alarms while it is down: %q", got)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if starts != 4 || first.closed != 1 || second.closed != 0 {
			t.Errorf("%d starts, first closed %d times, second %d times", starts, first.closed, second.closed)
		}
		if got := al.texts(); got != nil {
			t.Errorf("alarms when it is back: %q", got)
		}
		if err := end(t.Context()); err != nil || second.closed != 1 {
			t.Errorf("end: %v, second closed %d times", err, second.closed)
		}
	})
}

// A server that waits for room on its disk is back as soon as there is some.
func TestServerIsBackWhenThereIsRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := &frail{done: make(chan struct{})}, &frail{done: make(chan struct{})}
		var room time.Time
		var back time.Duration
		al := newAlarms(metrics.NewRegistry(), func() *slog.Logger { return testLog(t) })
		end := keepServer(testLog(t), al, alarmEtcd, first, func(context.Context) (*frail, error) {
			if time.Now().Before(room) {
				return nil, embedded.ErrNoSpace
			}
			back = time.Since(room)
			return second, nil
		})
		room = time.Now().Add(10*time.Minute + 500*time.Millisecond)
		close(first.done)
		time.Sleep(11 * time.Minute)
		synctest.Wait()
		if back == 0 || back > 2*serverRetry {
			t.Errorf("back %s after there was room, want at most %s", back, 2*serverRetry)
		}
		if err := end(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
