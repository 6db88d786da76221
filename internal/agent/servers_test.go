package agent

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
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
		end := keepServer(testLog(t), "etcd", first, func(context.Context) (*frail, error) {
			if starts++; starts < 4 {
				return nil, errors.New("no space left on device")
			}
			return second, nil
		})
		close(first.done)
		time.Sleep(time.Minute)
		synctest.Wait()
		if starts != 4 || first.closed != 1 || second.closed != 0 {
			t.Errorf("%d starts, first closed %d times, second %d times", starts, first.closed, second.closed)
		}
		if err := end(t.Context()); err != nil || second.closed != 1 {
			t.Errorf("end: %v, second closed %d times", err, second.closed)
		}
	})
}
