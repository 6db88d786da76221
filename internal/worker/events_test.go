package worker

import (
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/events"
)

// After events, readers are told where they end: the loss of the last event shows only by
// that.
func TestPositionIsToldAfterEvents(t *testing.T) {
	w := newWorld(t)
	var last atomic.Int64
	sub, err := w.c.Bus.Subscribe(t.Context(), events.Subject(cluster.DefaultNamespace, "decode", cluster.TopicKVPositions), func(e events.Event) {
		var p cluster.KVPosition
		if err := e.Decode(&p); err != nil {
			t.Error(err)
		}
		last.Store(int64(p.Next))
	})
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	r := w.start("worker-1", cluster.RoleDecode)
	tokens := prompt(rand.New(rand.NewPCG(1, 1)), 64)
	check(t, w.generate(t.Context(), "worker-1", request("req-1", tokens, 4)), tokens, 4)
	eventually(t, "the position is told", func() bool { return last.Load() > 0 && uint64(last.Load()) == r.events.position() })
}
