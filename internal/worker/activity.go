package worker

import (
	"context"
	"strings"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
)

// activityTimeout bounds how long an answer waits for the end of the engine's step.
const activityTimeout = 2 * time.Second

// serveActivity tells which sequences and transfers this worker has in hand.
func (w *Worker) serveActivity(ctx context.Context, r *requestplane.Request, send func(any) error) error {
	var req protocol.ActivityRequest
	if err := r.Decode(&req); err != nil {
		return err
	}
	limit := cluster.MaxActivity
	if req.Limit > 0 {
		limit = min(req.Limit, limit)
	}
	ctx, cancel := context.WithTimeout(ctx, activityTimeout)
	defer cancel()
	a, err := w.activity(ctx, limit)
	if err != nil {
		return remoteError(err)
	}
	return send(a)
}

// activity lists at most limit sequences, and as many transfers.
func (w *Worker) activity(ctx context.Context, limit int) (cluster.Activity, error) {
	a := cluster.Activity{Worker: w.Name()}
	var err error
	if a.Sequences, a.SequencesTotal, err = w.engine.Load().Sequences(ctx, limit); err != nil {
		return a, err
	}
	for i := range a.Sequences {
		a.Sequences[i].RequestID = requestOf(a.Sequences[i].ID)
	}
	a.Transfers, a.TransfersTotal = w.moves.list(limit, w.blockBytes)
	transports := map[string]string{}
	if len(a.Transfers) > 0 {
		for _, p := range w.nixl.Peers() {
			if p.Transport != "" {
				transports[workerOf(p.Name)] = p.Transport
			}
		}
	}
	for i := range a.Transfers {
		t := &a.Transfers[i]
		t.RequestID, t.Transport = requestOf(t.RequestID), transports[t.Peer]
	}
	a.At = time.Now()
	return a, nil
}

// requestOf is the request of a client that an id in the engine belongs to: attempts are
// told apart after a "~", prefills for others after a "#".
func requestOf(id string) string {
	if i := strings.IndexAny(id, "~#"); i > 0 {
		return id[:i]
	}
	return id
}
