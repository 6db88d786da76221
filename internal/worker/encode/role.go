package encode

import (
	"context"
	"fmt"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/worker/media"
	"github.com/dynctl/dynctl/internal/worker/role"
)

// Kind is the role in the table of the worker.
var Kind = role.Kind{Endpoint: cluster.EndpointGenerate, New: newRole}

// Role is a worker that encodes, for one term.
type Role struct {
	role.Base
	*role.Term
	desk desk
}

func newRole(_ context.Context, t *role.Term) (role.Role, error) {
	// Encode workers have nothing to say to each other.
	t.Peers.MeetSome(func(r cluster.Role) bool { return r == cluster.RolePrefill || r == cluster.RoleDecode })
	return &Role{Term: t}, nil
}

// Register implements role.Role.
func (w *Role) Register(ctx context.Context) error {
	if err := w.PublishCard(ctx, nil); err != nil {
		return err
	}
	_, err := w.Serve(ctx, cluster.EndpointGenerate, w.Metered(w.serve))
	return err
}

// Noticed implements kv.Listener: workers tell that they have read embeddings.
func (w *Role) Noticed(_ string, n protocol.PrefillNotice) { w.Media.Noticed(n) }

// InHand implements role.Role.
func (w *Role) InHand(limit int) ([]cluster.ImageWork, int) { return w.desk.list(limit, time.Now()) }

// Idle implements role.Role.
func (w *Role) Idle() error { return w.Media.Idle() }

// serve encodes one image and lets the caller read the embeddings.
func (w *Role) serve(ctx context.Context, r *requestplane.Request, send func(any) error) error {
	var req protocol.EncodeRequest
	if err := r.Decode(&req); err != nil {
		return err
	}
	if err := w.CheckModel(req.ModelSum); err != nil {
		return err
	}
	if req.Part.Rows <= 0 || req.Part.Key.IsZero() || req.EngineID == "" || !time.Now().Before(req.Deadline) {
		return &requestplane.RemoteError{Kind: requestplane.KindInvalidArgument, Message: fmt.Sprintf(
			"an image of %d positions for agent %q until %s: expected positions, a key, an agent and a deadline ahead", req.Part.Rows, req.EngineID, req.Deadline)}
	}
	ctx, cancel := context.WithDeadline(ctx, req.Deadline)
	defer cancel()
	image := w.desk.take(&req)
	defer w.desk.drop(image)
	rows, took, hit, err := w.Media.Embeddings(ctx, media.Owner{Request: req.RequestID, Tenant: req.Tenant}, &req.Part, func(ctx context.Context) ([]byte, error) { return w.Images.Content(ctx, &req.Part) })
	if err != nil {
		return role.RemoteError(media.Remote(err))
	}
	w.Meter.Encoded(hit, took)
	w.Media.Tell(req.RequestID, req.Worker, &req.Part, took, hit)
	w.desk.offered(image, hit)
	begin := time.Now()
	transport, read, err := w.Media.Offer(ctx, &req, rows, protocol.EncodeReply{Worker: w.Worker, Cached: hit}, send, w.Ending)
	if read {
		took, bytes := time.Since(begin), 4*int64(len(rows))*int64(len(rows[0]))
		w.KV.Moved(bytes, took)
		w.Meter.EmbeddingsSent(transport, bytes, took)
	}
	if err != nil {
		return role.RemoteError(media.Remote(err))
	}
	return nil
}
