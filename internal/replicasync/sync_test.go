package replicasync

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/metrics"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/runtime"
	"github.com/dynctl/dynctl/internal/runtime/runtimetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// badBus loses a share of what is published.
type badBus struct {
	events.Bus
	loses, fails atomic.Int32 // percent
}

var errFull = errors.New("outbox full")

func (b *badBus) Publish(ctx context.Context, subject string, v any) error {
	if strings.HasSuffix(subject, cluster.TopicFlights) {
		switch n := rand.Int32N(100); {
		case n < b.loses.Load():
			return nil
		case n < b.loses.Load()+b.fails.Load():
			return errFull
		}
	}
	return b.Bus.Publish(ctx, subject, v)
}

// replica is a frontend that does nothing but count.
type replica struct {
	*sender
	*Sync
	bus      *badBus
	server   requestplane.Server
	drt      *runtime.DistributedRuntime
	registry *metrics.Registry
	stop     func()
}

func newReplica(t *testing.T, c *runtimetest.Cluster, name string) *replica {
	t.Helper()
	r := &replica{bus: &badBus{}, sender: &sender{t: t, loads: loads(), rng: rand.New(rand.NewPCG(1, uint64(name[0])))}, registry: metrics.NewRegistry()}
	r.drt = c.Runtime(t, name, func(cfg *runtime.Config) {
		r.bus.Bus, r.server = cfg.Bus, cfg.Server
		cfg.Bus, cfg.Node = r.bus, name
	})
	var err error
	r.Sync, err = New(t.Context(), Config{Runtime: r.drt, Loads: r.loads, Metrics: r.registry, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan struct{})
	go func() { r.Run(ctx); close(over) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		<-over
		r.Close()
	})
	t.Cleanup(r.stop)
	return r
}

// sees waits until a replica counts n requests at decode workers 1 to 3 in all.
func (r *replica) sees(t *testing.T, n int) {
	t.Helper()
	patience.Until(t, "the requests are counted", func() bool {
		sum := 0
		for _, c := range counted(t, r.loads[cluster.RoleDecode]) {
			sum += c.InFlight
		}
		return sum == n
	})
}

// Frontends count each other's flights, also one that comes late; they forget those of one
// that leaves.
func TestFrontendsCountEachOther(t *testing.T) {
	c := runtimetest.New(t)
	a, b := newReplica(t, c, "a"), newReplica(t, c, "b")
	f := a.begin(cluster.RoleDecode, 1, 1, 2)
	b.begin(cluster.RoleDecode, 1, 1, 2, 3)
	hop := b.begin(cluster.RolePrefill, 2, 1)
	a.sees(t, 2)
	b.sees(t, 2)
	patience.Until(t, "the prefill is counted", func() bool { return a.loads[cluster.RolePrefill].InFlight(2) == 1 })
	if got := counted(t, a.loads[cluster.RoleDecode])[0]; got.InFlight != 2 || got.PrefillTokens != 33+49 || got.ActiveBlocks != 3+2 || got.Shared != 3 {
		t.Errorf("a counts %+v", got)
	}
	f.Prefilled()
	patience.Until(t, "the prompt is computed", func() bool { return counted(t, b.loads[cluster.RoleDecode])[0].PrefillTokens == 49 })
	late := newReplica(t, c, "late")
	late.sees(t, 2)
	if got, want := counted(t, late.loads[cluster.RoleDecode]), counted(t, b.loads[cluster.RoleDecode]); !reflect.DeepEqual(got, want) {
		t.Errorf("late counts %+v, b %+v", got, want)
	}
	all := late.Frontends()
	if len(all) != 2 || all[0].Frontend != "a" || all[0].InstanceID != a.drt.ID() || all[0].Flights != 1 || all[1].Flights != 2 || all[1].SnapshotsTotal != 1 || !all[1].OutOfDateSince.IsZero() {
		t.Errorf("late knows %+v", all)
	}
	if n := reading(t, late.registry, "flights"); n != 3 {
		t.Errorf("%g flights in the metrics", n)
	}
	f.End()
	b.sees(t, 1)
	hop.End()
	patience.Until(t, "the prefill has ended", func() bool { return a.loads[cluster.RolePrefill].InFlight(2) == 0 })
	b.stop()
	a.sees(t, 0)
	late.sees(t, 0)
}

// While changes are lost on the way and in the outbox, and after that, frontends end up
// with the same counts.
func TestFrontendsAgreeAfterLosses(t *testing.T) {
	c := runtimetest.New(t)
	all := []*replica{newReplica(t, c, "a"), newReplica(t, c, "b"), newReplica(t, c, "c")}
	for _, r := range all {
		r.bus.loses.Store(20)
		r.bus.fails.Store(20)
	}
	for range 300 {
		for _, r := range all {
			r.work()
		}
		time.Sleep(time.Millisecond)
	}
	for _, r := range all {
		r.bus.loses.Store(0)
		r.bus.fails.Store(0)
	}
	patience.Until(t, "all count the same", func() bool {
		first := state(t, all[0].loads)
		return reflect.DeepEqual(first, state(t, all[1].loads)) && reflect.DeepEqual(first, state(t, all[2].loads))
	})
	open, n := 0, 0
	for _, r := range all {
		open += len(r.open)
	}
	for _, phase := range state(t, all[0].loads) {
		for _, c := range phase {
			n += c.InFlight
		}
	}
	if n != open {
		t.Errorf("%d flights are counted, %d are open", n, open)
	}
	if reading(t, all[0].registry, "gaps_total") == 0 || reading(t, all[0].registry, `dropped_total{reason="lost"}`) == 0 || reading(t, all[0].registry, "snapshots_total") < 3 {
		t.Error("nothing was lost")
	}
}

// A frontend whose events do not arrive any more is asked; one that can be neither heard
// nor asked is forgotten, though it stays in discovery.
func TestUnheardFrontend(t *testing.T) {
	t.Parallel() // it takes seconds
	c := runtimetest.New(t)
	a, b, idle := newReplica(t, c, "a"), newReplica(t, c, "b"), newReplica(t, c, "c")
	b.begin(cluster.RoleDecode, 1, 1)
	a.sees(t, 1)
	b.bus.loses.Store(100)
	b.begin(cluster.RoleDecode, 1, 1)
	a.sees(t, 2)
	if n := a.Frontends()[0].SnapshotsTotal; n != 2 {
		t.Errorf("asked %d times", n)
	}
	if err := b.server.Close(); err != nil { // its lease lives on
		t.Fatal(err)
	}
	a.sees(t, 0)
	all := a.Frontends()
	if len(all) != 2 || all[0].OutOfDateSince.IsZero() || all[1].InstanceID != idle.drt.ID() || all[1].SnapshotsTotal != 1 {
		t.Errorf("it knows %+v; the idle one tells its position, and need not be asked", all)
	}
}

// Malformed messages are counted and change nothing; own ones are ignored.
func TestForeignMessages(t *testing.T) {
	c := runtimetest.New(t)
	a, b := newReplica(t, c, "a"), newReplica(t, c, "b")
	b.begin(cluster.RoleDecode, 1, 1)
	a.sees(t, 1)
	bus := c.Bus.Join()
	defer bus.Close()
	for _, v := range []any{
		"text", map[string]any{"frontend": "x"},
		cluster.FlightEvents{Frontend: b.drt.ID(), Epoch: 1, Changes: []cluster.FlightChange{{Kind: cluster.FlightBegin, Phase: "x", Flight: 1, Worker: 1}}},
	} {
		if err := bus.Publish(t.Context(), a.subject, v); err != nil {
			t.Fatal(err)
		}
	}
	own, epoch, next := a.outbox.snapshot()
	forged := cluster.FlightEvents{Frontend: a.drt.ID(), Epoch: epoch, First: next, Changes: []cluster.FlightChange{{Kind: cluster.FlightBegin, Phase: cluster.RoleDecode, Flight: 1, Worker: 1}}}
	if err := bus.Publish(t.Context(), a.subject, forged); err != nil || len(own) > 0 {
		t.Fatal(err, own)
	}
	patience.Until(t, "they are counted", func() bool { return reading(t, a.registry, `dropped_total{reason="malformed"}`) == 3 })
	b.begin(cluster.RoleDecode, 1, 1) // after them on the same wire
	a.sees(t, 2)
}
