package frontend

import (
	"context"
	"errors"
	"testing"
)

// One client takes its part of the room, all clients together no more than there is.
func TestLoads(t *testing.T) {
	l := newLoads()
	l.most, l.each = 5, 2
	gone := errors.New("gone")
	over, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	var leave []func()
	enter := func(tenant string, room bool) {
		t.Helper()
		out, err := l.enter(over, tenant) // waits for nobody
		if (err == nil) != room || err != nil && !errors.Is(err, gone) {
			t.Errorf("%s: %v", tenant, err)
		}
		if err == nil {
			leave = append(leave, out)
		}
	}
	for _, tenant := range []string{"a", "b"} {
		enter(tenant, true)
		enter(tenant, true)
		enter(tenant, false)
	}
	enter("c", true)
	enter("c", false) // all are taken
	enter("d", false)
	entered := make(chan struct{})
	go func() {
		defer close(entered)
		out, err := l.enter(t.Context(), "d")
		if err != nil {
			t.Error(err)
			return
		}
		out()
	}()
	leave[0]()
	<-entered
	for _, f := range leave[1:] {
		f()
	}
	if l.all != 0 || len(l.by) != 0 {
		t.Errorf("%d are left, %v", l.all, l.by)
	}
}
