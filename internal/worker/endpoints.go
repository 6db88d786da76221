package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/metrics"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/runtime"
)

// join binds the worker's endpoints, publishes its model card and registers it.
func (w *Worker) join(ctx context.Context, drt *runtime.DistributedRuntime) error {
	component := w.Role().Component()
	serve := func(endpoint string, h requestplane.Handler) (*runtime.Served, error) {
		s, err := drt.Serve(ctx, component, endpoint, h)
		if err != nil {
			return nil, fmt.Errorf("serve %s/%s: %w", component, endpoint, err)
		}
		w.served = append(w.served, s)
		return s, nil
	}
	if _, err := serve(cluster.EndpointStats, w.serveStats); err != nil {
		return err
	}
	if _, err := serve(cluster.EndpointModelFiles, w.serveModelFiles); err != nil {
		return err
	}
	if _, err := serve(cluster.EndpointClearKV, w.serveClearKV); err != nil {
		return err
	}
	if _, err := serve(cluster.EndpointPaths, w.servePaths); err != nil {
		return err
	}
	if _, err := serve(cluster.EndpointActivity, w.serveActivity); err != nil {
		return err
	}
	main, handler := cluster.EndpointGenerate, w.generate
	var bootstrap *cluster.BootstrapEndpoint
	if w.Role() == cluster.RolePrefill {
		main, handler = cluster.EndpointPrefill, w.servePrefillCall
		s, err := serve(cluster.EndpointBootstrap, w.metered(w.serveRoom))
		if err != nil {
			return err
		}
		w.announced = append(w.announced, s)
		if bootstrap, err = bootstrapEndpoint(s.Instance()); err != nil {
			return err
		}
	}
	if err := w.publishCard(ctx, drt, main, bootstrap); err != nil {
		return err
	}
	if w.Role() == cluster.RolePrefill {
		// Before the endpoint that decode workers look at: who finds that finds this.
		s, err := serve(cluster.EndpointGenerate, w.metered(w.servePrefill))
		if err != nil {
			return err
		}
		w.announced = append(w.announced, s)
	}
	s, err := serve(main, w.metered(handler))
	if err != nil {
		return err
	}
	w.announced = append(w.announced, s)
	if w.Role() == cluster.RoleDecode {
		if s, err = serve(cluster.EndpointHandover, w.serveHandover); err != nil {
			return err
		}
		w.announced = append(w.announced, s)
	}
	if w.Role() == cluster.RolePrefill {
		w.pulling.start(w)
	}
	return nil
}

// bootstrapEndpoint is what a card says of a bootstrap endpoint.
func bootstrapEndpoint(i cluster.Instance) (*cluster.BootstrapEndpoint, error) {
	addr, _, _ := strings.Cut(i.Transport.TCP, "/")
	host, text, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("address of the bootstrap endpoint: %w", err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return nil, fmt.Errorf("port of the bootstrap endpoint: %w", err)
	}
	return &cluster.BootstrapEndpoint{Host: host, Port: port}, nil
}

// publishCard describes the model as this worker serves it.
func (w *Worker) publishCard(ctx context.Context, drt *runtime.DistributedRuntime, endpoint string, bootstrap *cluster.BootstrapEndpoint) error {
	card := w.loaded.Card
	card.WorkerType = w.Role()
	card.ContextLength = w.engine.Load().MaxModelLen()
	card.BlockSize = w.kv.BlockSize()
	st, spec := w.engine.Load().Stats(), w.cfg.Assignment.Model
	card.Runtime = cluster.RuntimeConfig{
		TotalKVBlocks: st.KVTotal, MaxNumSeqs: st.MaxSeqs, MaxBatchTokens: w.cfg.Assignment.Engine.MaxBatchTokens,
		KVDType: w.info.KV.DType, KVBlockBytes: w.kv.BlockBytes(), TensorParallel: w.info.TensorParallel, Disaggregated: bootstrap,
		ToolCallParser: spec.ToolParser, ReasoningParser: spec.ReasoningParser,
	}
	body, err := json.Marshal(card)
	if err != nil {
		return fmt.Errorf("encode model card: %w", err)
	}
	key := func(id cluster.InstanceID) string {
		return cluster.CardKey(w.cfg.Namespace, w.Role().Component(), endpoint, id)
	}
	if _, err := drt.PutOwned(ctx, key, func(cluster.InstanceID) []byte { return body }); err != nil {
		return fmt.Errorf("publish model card: %w", err)
	}
	return nil
}

// leave takes the worker out of discovery; it goes on serving.
func (w *Worker) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	for _, s := range w.announced {
		if err := s.Leave(ctx); err != nil {
			w.log.Warn("leave discovery", "error", err) // the lease ends it otherwise
		}
	}
}

// announce brings a worker that left back into discovery, at once or, when the store
// is out of reach, as soon as it is back: what runs here is no reason to end.
func (w *Worker) announce(ctx context.Context) error {
	for _, s := range w.announced {
		switch err := s.Join(ctx); {
		case errors.Is(err, runtime.ErrClosed) || ctx.Err() != nil:
			return fmt.Errorf("join discovery again: %w", err)
		case err != nil:
			w.log.Warn("not in discovery again yet, the runtime goes on trying", "error", err)
		}
	}
	if w.Role() == cluster.RolePrefill {
		w.pulling.start(w)
	}
	return nil
}

// closeServed refuses new calls and waits for running ones, for a limited time.
func (w *Worker) closeServed(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	for _, s := range w.served {
		if err := s.Close(ctx); err != nil {
			w.log.Warn("close endpoint", "error", err)
		}
	}
}

// requestsInFlight counts calls whose answers are not completely written.
func (w *Worker) requestsInFlight() int {
	n := 0
	for _, s := range w.announced {
		n += s.InFlight()
	}
	return n
}

func (w *Worker) serveStats(_ context.Context, _ *requestplane.Request, send func(any) error) error {
	return send(w.Status())
}

// serveClearKV forgets the prefix cache and answers with the number of blocks.
func (w *Worker) serveClearKV(ctx context.Context, _ *requestplane.Request, send func(any) error) error {
	n, err := w.engine.Load().ClearCache(ctx)
	if err != nil {
		return remoteError(err)
	}
	return send(protocol.ClearedKV{Blocks: n})
}

// filePiece is how much of a model file travels in one item: tokenizers can be
// larger than an item may be.
const filePiece = 4 << 20

// serveModelFiles sends tokenizer and configuration files to frontends, which so
// need no access to the model directory. Large files come in several items.
func (w *Worker) serveModelFiles(_ context.Context, r *requestplane.Request, send func(any) error) error {
	var req protocol.ModelFilesRequest
	if err := r.Decode(&req); err != nil {
		return err
	}
	for _, name := range req.Names {
		content, ok := w.loaded.Files[name]
		if !ok {
			return &requestplane.RemoteError{Kind: requestplane.KindInvalidArgument, Message: fmt.Sprintf("no file %q with this model", name)}
		}
		for piece := range slices.Chunk(content, filePiece) {
			if err := send(protocol.ModelFile{Name: name, Content: piece}); err != nil {
				return err
			}
		}
	}
	return nil
}

// metered counts the requests of an endpoint.
func (w *Worker) metered(h requestplane.Handler) requestplane.Handler {
	return func(ctx context.Context, r *requestplane.Request, send func(any) error) error {
		begin, m := time.Now(), w.meter()
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
