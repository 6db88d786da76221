package role

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/metrics"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/worker/kv"
	"github.com/dynctl/dynctl/internal/worker/media"
)

// Term is one term of service, as the role of the worker sees it. Its fields do not
// change; when the worker takes another role, there is another Term.
type Term struct {
	Host

	Worker string   // name of the worker
	Taints []string // labels of its node
	Log    *slog.Logger
	Meter  *metrics.Worker // with the labels of the role

	// What the worker keeps over its terms.
	Engine *engine.Engine
	KV     *kv.Plane
	Media  *media.Plane
	Model  Model

	Peers      *kv.Peers
	Images     *media.Finder // nil: the model takes no images
	Queue      events.WorkQueue
	Bus        events.Bus
	Settings   func() Settings // at present; does not block
	QueueDepth func() int      // last known number of waiting remote prefills; does not block
	Limits     *Limits

	// Ending is closed when work in hand must stop.
	Ending <-chan struct{}
}

// Host gives a role access to the cluster under the lease of its term.
type Host interface {
	// ID is the instance id of the worker at present.
	ID() cluster.InstanceID
	// Serve serves an endpoint that others use to reach the role. A drain takes it out of
	// discovery, and its end closes it.
	Serve(ctx context.Context, endpoint string, h requestplane.Handler) (cluster.Instance, error)
	// PublishCard describes the model as this worker serves it. bootstrap may be nil. A later call
	// replaces the card; if it fails, it is tried again. Calls must not overlap.
	PublishCard(ctx context.Context, bootstrap *cluster.BootstrapEndpoint) error
	media.Host
}

// Model describes the model to roles.
type Model struct {
	Digest string
	// Constrain makes what keeps one output within a constraint; nil: this worker cannot.
	Constrain func(ctx context.Context, g protocol.Guided) (engine.Constraint, error)
}

// CheckModel refuses a request that was made for another model. Without a digest, as in a
// call by hand, the caller takes the model as it is.
func (t *Term) CheckModel(digest string) error {
	if digest == "" || digest == t.Model.Digest {
		return nil
	}
	return &requestplane.RemoteError{Kind: requestplane.KindUnavailable, Message: fmt.Sprintf(
		"model digest mismatch: the frontend has %s, %s has %s", ShortDigest(digest), t.Worker, ShortDigest(t.Model.Digest))}
}

// CheckRequest refuses a request for another model, or for an adapter: the built-in engine has
// none.
func (t *Term) CheckRequest(p *protocol.PreprocessedRequest) error {
	if p.Adapter != "" {
		return &requestplane.RemoteError{Kind: requestplane.KindUnavailable, Message: fmt.Sprintf("%s has no adapter %q", t.Worker, p.Adapter)}
	}
	return t.CheckModel(p.ModelSum)
}

// ShortDigest is a digest as people tell digests apart.
func ShortDigest(digest string) string { return digest[:min(len(digest), 12)] }

// Metered counts the requests of an endpoint.
func (t *Term) Metered(h requestplane.Handler) requestplane.Handler {
	return func(ctx context.Context, r *requestplane.Request, send func(any) error) error {
		begin, m := time.Now(), t.Meter
		m.Requests.Inc()
		m.Inflight.Inc()
		m.RequestBytes.Add(float64(len(r.Body)))
		err := h(ctx, r, send)
		m.Inflight.Dec()
		m.RequestDuration.Observe(time.Since(begin).Seconds())
		if err != nil && ctx.Err() == nil {
			m.Error(metrics.WorkerErrorGenerate)
		}
		return err
	}
}
