package dynamo_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/dynamo"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/store"
)

// A program makes itself known under its lease, with the health of its endpoints.
func TestProgramIsKnown(t *testing.T) {
	r := join(t, local(t), dynamo.WithName("hello-42"))
	published := func() cluster.Program {
		t.Helper()
		d := r.Inner()
		kv, err := d.Store().Get(t.Context(), cluster.ProgramKey(r.Namespace(), d.ID()))
		if err != nil {
			t.Fatal(err)
		}
		p, err := store.DecodeJSON[cluster.Program](kv)
		if err != nil || uint64(kv.Lease) != r.ID() {
			t.Fatalf("%+v under %s, %v", p, kv.Lease, err)
		}
		return p
	}
	if p := published(); p.Name != "hello-42" || p.Kind != cluster.ProgramOwn || p.PID != os.Getpid() || p.State() != cluster.StateReady || time.Since(p.StartedAt) > time.Minute {
		t.Errorf("published %+v", p)
	}
	fails := serve(t, r, "a.b.fails", func(context.Context, *dynamo.Request, func(any) error) error { return errors.New("out of memory") },
		dynamo.WithCanary(nil, time.Hour, time.Second))
	patience.Until(t, "it is published as unhealthy", func() bool { return strings.Contains(published().Reason, "b/fails: out of memory") })
	if err := fails.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	patience.Until(t, "it is published as healthy", func() bool { return published().State() == cluster.StateReady })
}
