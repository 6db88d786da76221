package frontend

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/runtime"
)

// generator answers requests as a worker's engine would.
type generator func(ctx context.Context, req protocol.PreprocessedRequest, send func(protocol.EngineOutput) error) error

// fake is a worker without an engine.
type fake struct {
	name   string
	drt    *runtime.DistributedRuntime
	server requestplane.Server
	card   cluster.ModelCard
	carded *runtime.Owned
	files  map[string][]byte
	served *runtime.Served
	wait   <-chan struct{} // nil, or closed when files may be sent

	mu        sync.Mutex
	requests  []protocol.PreprocessedRequest
	cancelled atomic.Int32 // requests whose caller left
	running   atomic.Int32
	fetched   atomic.Int32 // requests for files
}

// fake starts a worker that answers with gen.
func (w *world) fake(name string, gen generator, changes ...func(*fake)) *fake {
	w.t.Helper()
	fk := &fake{name: name, files: testFiles()}
	fk.drt = w.runtime(name, func(c *runtime.Config) { fk.server = c.Server })
	fk.card = cluster.ModelCard{
		DisplayName: testModel, Digest: testDigest, WorkerType: cluster.RoleDecode, ContextLength: testContext,
		BlockSize: testBlock, HashSeed: cluster.DefaultHashSeed, Runtime: cluster.RuntimeConfig{TotalKVBlocks: 100, MaxNumSeqs: 8},
	}
	for _, change := range changes {
		change(fk)
	}
	if fk.card.Files == nil {
		fk.card.Files = cardFiles(fk.files)
	}
	ctx, component := w.t.Context(), fk.card.WorkerType.Component()
	if _, err := fk.drt.Serve(ctx, component, cluster.EndpointModelFiles, fk.serveFiles); err != nil {
		w.t.Fatal(err)
	}
	body, err := json.Marshal(fk.card)
	if err != nil {
		w.t.Fatal(err)
	}
	key := func(id cluster.InstanceID) string {
		return cluster.CardKey(cluster.DefaultNamespace, component, cluster.EndpointGenerate, id)
	}
	if fk.carded, err = fk.drt.PutOwned(ctx, key, func(cluster.InstanceID) []byte { return body }); err != nil {
		w.t.Fatal(err)
	}
	if fk.served, err = fk.drt.Serve(ctx, component, cluster.EndpointGenerate, fk.handler(gen)); err != nil {
		w.t.Fatal(err)
	}
	return fk
}

func cardFiles(files map[string][]byte) (out []cluster.CardFile) {
	for name, content := range files {
		sum := sha256.Sum256(content)
		out = append(out, cluster.CardFile{Name: name, SHA256: hex.EncodeToString(sum[:]), Size: int64(len(content))})
	}
	return out
}

func (fk *fake) serveFiles(_ context.Context, r *requestplane.Request, send func(any) error) error {
	fk.fetched.Add(1)
	var req protocol.ModelFilesRequest
	if err := r.Decode(&req); err != nil {
		return err
	}
	if fk.wait != nil {
		<-fk.wait
	}
	for _, name := range req.Names { // in two pieces each
		half := len(fk.files[name]) / 2
		for _, piece := range [][]byte{fk.files[name][:half], fk.files[name][half:]} {
			if err := send(protocol.ModelFile{Name: name, Content: piece}); err != nil {
				return err
			}
		}
	}
	return nil
}

func (fk *fake) handler(gen generator) requestplane.Handler {
	return func(ctx context.Context, r *requestplane.Request, send func(any) error) error {
		var req protocol.PreprocessedRequest
		if err := r.Decode(&req); err != nil {
			return err
		}
		fk.mu.Lock()
		fk.requests = append(fk.requests, req)
		fk.mu.Unlock()
		fk.running.Add(1)
		defer fk.running.Add(-1)
		err := gen(ctx, req, func(o protocol.EngineOutput) error { return send(o) })
		var away *movedAway
		if errors.As(err, &away) {
			return send(protocol.EngineOutput{Finish: protocol.FinishMoved, Moved: &away.Moved})
		}
		if err != nil && ctx.Err() != nil {
			fk.cancelled.Add(1)
		}
		return err
	}
}

// movedAway ends a generation because its sequence is at another worker.
type movedAway struct{ protocol.Moved }

func (*movedAway) Error() string { return "moved" }

// at says that a sequence goes on at this worker.
func (fk *fake) at(handover string) *movedAway {
	return &movedAway{protocol.Moved{Worker: fk.name, InstanceID: fk.drt.ID(), Handover: handover}}
}

// got returns the requests that arrived.
func (fk *fake) got() []protocol.PreprocessedRequest {
	fk.mu.Lock()
	defer fk.mu.Unlock()
	return append([]protocol.PreprocessedRequest(nil), fk.requests...)
}

// adapts publishes the card again, with other adapters.
func (fk *fake) adapts(t testing.TB, adapters ...string) {
	t.Helper()
	fk.card.Adapters = adapters
	body, err := json.Marshal(fk.card)
	if err == nil {
		err = fk.carded.Update(t.Context(), func(cluster.InstanceID) []byte { return body })
	}
	if err != nil {
		t.Fatal(err)
	}
}

// crash ends the worker's connections at once, as kill -9 does; discovery goes on
// listing it until its lease ends.
func (fk *fake) crash() { _ = fk.server.Close() }

// vanish revokes the worker's lease.
func (fk *fake) vanish(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := fk.drt.Close(ctx); err != nil {
		t.Error(err)
	}
}

// made are log probabilities for n tokens, if any are asked for.
func made(width *int, n int) *protocol.Logprobs {
	if width == nil {
		return nil
	}
	lp := &protocol.Logprobs{Width: *width, Tokens: make([]float32, n)}
	for range n {
		for id := range *width {
			lp.TopIDs, lp.TopValues = append(lp.TopIDs, uint32(id)), append(lp.TopValues, float32(-id))
		}
	}
	return lp
}

// say generates a fixed text token by token, from where an earlier attempt ended,
// and calls each hook with the number of the token before it is sent.
func say(answer string, hooks ...func(ctx context.Context, n int) error) generator {
	ids := tokens(answer)
	return func(ctx context.Context, req protocol.PreprocessedRequest, send func(protocol.EngineOutput) error) error {
		for n := 0; ; n++ {
			for _, hook := range hooks {
				if err := hook(ctx, req.Generated+n); err != nil {
					return err
				}
			}
			var o protocol.EngineOutput
			if n == 0 {
				o.Timing = &protocol.Timing{Worker: "w", Prefill: "local", PrefillWhy: "short", QueueNS: 1000, CachedTokens: len(req.TokenIDs) / 2}
				o.PromptLogprobs = made(req.Output.PromptLogprobs, len(req.TokenIDs)-req.Generated-1)
				if req.Stop.MaxTokens == 0 {
					o.Finish = protocol.FinishLength
					return send(o)
				}
			}
			if at := req.Generated + n; at < len(ids) {
				o.TokenIDs, o.Logprobs = ids[at:at+1], made(req.Output.Logprobs, 1)
				if o.Logprobs != nil {
					o.Logprobs.Tokens[0] = -float32(at) / 128 // says which token it belongs to
				}
			} else {
				o.Finish = protocol.FinishStop
			}
			if n+1 == req.Stop.MaxTokens && o.Finish == "" {
				o.Finish = protocol.FinishLength
			}
			if err := send(o); err != nil || o.Finish != "" {
				return err
			}
		}
	}
}

// hold waits before token n until release is closed or the caller leaves.
func hold(at int, release <-chan struct{}) func(context.Context, int) error {
	return func(ctx context.Context, n int) error {
		if n != at {
			return nil
		}
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// refuse answers every request with an error.
func refuse(kind requestplane.Kind) generator {
	return func(context.Context, protocol.PreprocessedRequest, func(protocol.EngineOutput) error) error {
		return &requestplane.RemoteError{Kind: kind, Message: "refused by test"}
	}
}

// failAt ends the generation with an error before token n of the first attempt.
func failAt(at int, err error) func(context.Context, int) error {
	return func(_ context.Context, n int) error {
		if n == at {
			return err
		}
		return nil
	}
}

// roomy gives a model more context than tools and moves take.
func roomy(fk *fake) { fk.card.ContextLength = 4096 }
