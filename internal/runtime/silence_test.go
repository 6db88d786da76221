package runtime_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynctl/dynctl/internal/runtime"
	"github.com/dynctl/dynctl/internal/runtime/runtimetest"
	"github.com/dynctl/dynctl/internal/store"
)

// Who leaves while the store is silent waits once for all that is to be taken back, not
// for each step anew: the lease takes it back as well.
func TestLeavingASilentStoreWaitsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const patience = 2 * time.Second
		c := runtimetest.New(t)
		d, err := runtime.New(t.Context(), c.Config(t, "worker-1"))
		if err != nil {
			t.Fatal(err)
		}
		var served []*runtime.Served
		for _, endpoint := range []string{"generate", "stats", "paths"} {
			served = append(served, serve(t, d, endpoint, echo("here")))
		}
		status, err := d.PutOwned(t.Context(), fixed("p/status"), byID("ready"))
		if err != nil {
			t.Fatal(err)
		}
		answer := c.Store.FallSilent(patience)
		defer answer()
		begin := time.Now()
		step := func(what string, f func(context.Context) error) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := f(ctx); !errors.Is(err, store.ErrUnavailable) {
				t.Errorf("%s: got %v, want %v", what, err, store.ErrUnavailable)
			}
			if took := time.Since(begin); took != patience {
				t.Errorf("%s ended %s after the store fell silent, want %s", what, took, patience)
			}
		}
		for _, s := range served {
			step("leave", s.Leave)
		}
		step("delete", status.Delete)
		for _, s := range served {
			step("close", s.Close)
		}
		step("revoke", d.Close)
	})
}

// Requests in flight are waited for as long as ever when the store is silent.
func TestSilentStoreCutsNoRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := runtimetest.New(t)
		d := c.Runtime(t, "worker-1")
		client := runtimetest.Client(t, c.Runtime(t, "frontend-1"), "backend", "generate")
		release := make(chan struct{})
		s := serve(t, d, "generate", hold(release))
		stream, err := client.Call(t.Context(), only(t, client), "req-1", nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		next(t, stream, "started")
		answer := c.Store.FallSilent(time.Second)
		defer answer()
		begin := time.Now()
		time.AfterFunc(20*time.Second, func() { close(release) })
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := s.Close(ctx); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("close: %v", err)
		}
		if took := time.Since(begin); took != 20*time.Second {
			t.Errorf("closed after %s, the request took 20s", took)
		}
	})
}
