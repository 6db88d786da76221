package runtime_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/runtime/runtimetest"
	"github.com/dynctl/dynctl/internal/store"
)

// What a program publishes of itself follows the health of its endpoints and its own word,
// and goes with its lease.
func TestIntroduce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start = time.Now()
		c := runtimetest.New(t)
		d := c.Runtime(t, "hello-42")
		i, err := d.Introduce(t.Context(), cluster.Program{Name: "hello-42", Kind: cluster.ProgramOwn})
		if err != nil {
			t.Fatal(err)
		}
		published := func() (p cluster.Program) {
			t.Helper()
			synctest.Wait()
			kv, err := c.Store.Get(t.Context(), cluster.ProgramKey("dynamo", d.ID()))
			if err == nil {
				p, err = store.DecodeJSON[cluster.Program](kv)
			}
			if err != nil || kv.Lease != d.ID() || p.InstanceID != d.ID() || !p.StartedAt.Equal(start) {
				t.Fatalf("%+v under %s, %v", p, kv.Lease, err)
			}
			return p
		}
		if p := published(); p.State() != cluster.StateReady || !p.Since.Equal(start) {
			t.Errorf("at first: %+v", p)
		}
		var broken atomic.Bool
		s := probed(t, d, func(context.Context, *requestplane.Request, func(any) error) error {
			if broken.Load() {
				return errors.New("out of memory")
			}
			return nil
		})
		time.Sleep(time.Second)
		if p := published(); p.State() != cluster.StateReady {
			t.Errorf("after a probe: %+v", p)
		}
		broken.Store(true)
		time.Sleep(10 * time.Second)
		if p := published(); p.State() != cluster.StateDegraded || p.Reason != "backend/generate: out of memory" || !p.Since.Equal(start.Add(10*time.Second)) {
			t.Errorf("with a broken endpoint: %+v", p)
		}
		i.Say("closed for lunch")
		if p := published(); p.Reason != "closed for lunch" {
			t.Errorf("its own word: %+v", p)
		}
		i.Say("")
		if p := published(); !strings.Contains(p.Reason, "out of memory") {
			t.Errorf("its own word is taken back: %+v", p)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if p := published(); p.State() != cluster.StateReady {
			t.Errorf("without the endpoint: %+v", p)
		}
		id := d.ID()
		if err := d.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Store.Get(t.Context(), cluster.ProgramKey("dynamo", id)); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("after its end: %v", err)
		}
		i.Say("too late") // and nothing happens
	})
}
