package worker

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/worker/role"
)

// activityTimeout bounds how long an answer waits for the end of the engine's step.
const activityTimeout = 2 * time.Second

// serveActivity tells which sequences and transfers this worker has in hand.
func (t *term) serveActivity(ctx context.Context, r *requestplane.Request, send func(any) error) error {
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
	a, err := t.core.activity(ctx, limit)
	if err != nil {
		return role.RemoteError(err)
	}
	a.Worker = t.cfg.Assignment.Name
	a.Images, a.ImagesTotal = t.duty.InHand(limit)
	for i := range a.Images {
		a.Images[i].RequestID = requestOf(a.Images[i].RequestID)
	}
	if t.images != nil {
		for _, key := range req.Keys[:min(len(req.Keys), protocol.MaxKeys)] {
			a.Embeddings = append(a.Embeddings, t.images.At(key))
		}
	}
	return send(a)
}

// requestOf is the request of a client that an id in the engine belongs to: attempts are
// told apart after a "~", prefills for others after a "#".
func requestOf(id string) string {
	if i := strings.IndexAny(id, "~#"); i > 0 {
		return id[:i]
	}
	return id
}

// servePaths tells how this worker reaches others over NIXL, and tests a path when it
// is asked to.
func (t *term) servePaths(ctx context.Context, r *requestplane.Request, send func(any) error) error {
	var req protocol.PathsRequest
	if err := r.Decode(&req); err != nil {
		return err
	}
	if req.Peer == t.cfg.Assignment.Name {
		return &requestplane.RemoteError{Kind: requestplane.KindInvalidArgument, Message: "a worker has no path to itself"}
	}
	var failed error
	if req.Peer != "" && req.Test {
		failed = t.testPath(ctx, req.Peer)
	}
	paths := t.core.paths(req.Peer)
	if req.Peer != "" {
		if len(paths) == 0 {
			paths = []cluster.Path{{From: t.cfg.Assignment.Name, To: req.Peer}}
		}
		if p := &paths[0]; p.Transport == "" && failed != nil {
			p.Failed = failed.Error()
		} else if p.Transport == "" && p.Failed == "" {
			p.Failed = "not met yet"
		}
	}
	for _, p := range paths {
		if err := send(p); err != nil {
			return err
		}
	}
	return nil
}

func (t *term) testPath(ctx context.Context, peer string) error {
	if t.peers == nil {
		return errors.New("its engine moves KV itself")
	}
	return t.peers.TestPath(ctx, peer)
}
