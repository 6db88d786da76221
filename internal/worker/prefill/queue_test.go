package prefill

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/worker/role/roletest"
)

// A worker that stops gives its message back; the last time that the message is delivered, its
// decode worker does the work, and it is no dead letter.
func TestStopsWithAMessage(t *testing.T) {
	for name, tc := range map[string]struct {
		deliveries, pending int
	}{
		"for another worker": {2, 1},
		"for the last time":  {1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			world := roletest.New(t)
			r, err := newRole(t.Context(), world.Term(t, "worker-1", cluster.RolePrefill))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(r.End)
			w, other := r.(*Role), world.Term(t, "worker-2", cluster.RoleDecode).KV.Agent()
			q := events.NewMemoryQueue(events.QueueConfig{MaxDeliver: tc.deliveries})
			req := ask(w)
			req.RequestID, req.EnqueuedAt, req.Deadline = "r", time.Now(), time.Now().Add(patience.Soon)
			req.Ticket, req.EngineID = nixl.TicketID{1}.String(), other.Name()
			if _, err := w.KV.Agent().LoadRemote(other.Metadata()); err != nil {
				t.Fatal(err)
			}
			body, err := protocol.Marshal(req)
			if err != nil {
				t.Fatal(err)
			}
			if err := q.Enqueue(t.Context(), "r", body); err != nil {
				t.Fatal(err)
			}
			work, stop := context.WithCancelCause(t.Context())
			stop(errors.New("it stops"))
			fetching, enough := context.WithTimeout(t.Context(), patience.Soon)
			defer enough()
			_ = q.Consume(fetching, 1, func(_ context.Context, d *events.Delivery) {
				enough() // the first is enough
				w.serveMessage(work, d)
			})
			depth, err := q.Depth(t.Context())
			if err != nil || depth.DeadLettered != 0 || depth.Pending != tc.pending || depth.InWork != 0 {
				t.Errorf("%+v, %v", depth, err)
			}
		})
	}
}
