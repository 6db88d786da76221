package dynamo

import (
	"context"
	"slices"
	"testing"
)

// A handler that is stopped ends in its own time, and its answer is complete.
func TestStopOn(t *testing.T) {
	l := NewLocal()
	defer l.Close()
	r, err := l.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close(context.WithoutCancel(t.Context()))
	e, err := r.Endpoint("dyn://test.backend.count")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Serve(t.Context(), Stream(func(ctx context.Context, from int, send func(int) error) error {
		if err := send(from); err != nil {
			return err
		}
		select {
		case <-Stopped(ctx):
			return send(-1)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})); err != nil {
		t.Fatal(err)
	}
	c, err := e.Client(t.Context(), RoundRobin)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	stop := make(chan struct{})
	var got []int
	for n, err := range Call[int](t.Context(), c, 7, StopOn(stop)) {
		if err != nil {
			t.Fatal(err)
		}
		if got = append(got, n); len(got) == 1 {
			close(stop)
		}
	}
	if !slices.Equal(got, []int{7, -1}) {
		t.Errorf("got %v", got)
	}
	for range Call[int](t.Context(), c, 7, StopOn(make(chan struct{}))) {
		break // a stop that never comes keeps nobody
	}
	if Stopped(t.Context()) != nil {
		t.Error("a context without a request can be stopped")
	}
}
