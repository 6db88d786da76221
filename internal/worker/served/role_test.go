package served

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/external"
	"github.com/dynctl/dynctl/internal/metrics"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/worker/role"
)

// Chunks of a body are passed on as they are, and the server's own usage counts.
func TestAnswersToBodies(t *testing.T) {
	usage := protocol.Usage{PromptTokens: 40, CompletionTokens: 2, CachedTokens: 16}
	f := &fake{generate: emits(
		protocol.EngineOutput{Raw: json.RawMessage(`{"a": 1}`)},
		protocol.EngineOutput{Raw: json.RawMessage(`{"a": 2}`)},
		protocol.EngineOutput{Finish: protocol.FinishStop, Usage: &usage},
	)}
	s := newServer(f)
	body := protocol.PreprocessedRequest{Body: json.RawMessage(`{"messages":[]}`)}
	out, err := serve(t.Context(), t, s, cluster.RoleDecode, body)
	if err != nil || len(out) != 3 || string(out[0].Raw) != `{"a": 1}` || string(out[1].Raw) != `{"a": 2}` {
		t.Fatalf("%+v, %v", out, err)
	}
	if last := out[2]; last.Usage == nil || *last.Usage != usage || last.DecodeNS < 0 {
		t.Errorf("%+v, %+v", last, last.Usage)
	}
	if st := s.Stats(); st.GeneratedTotal != 2 || st.FinishedTotal != 1 {
		t.Errorf("%+v", st)
	}
}

// An answer says where its prompt was computed where the servers meet; what was cached is for the
// prefill server to tell.
func TestAnswersOfServersThatMeet(t *testing.T) {
	f := &fake{exchange: external.ExchangeConcurrent, generate: emits(protocol.EngineOutput{TokenIDs: []uint32{4}, Finish: protocol.FinishStop, Timing: &protocol.Timing{CachedTokens: 8}})}
	p := protocol.PreprocessedRequest{TokenIDs: []uint32{1}, Stop: protocol.StopConditions{MaxTokens: 1}}
	p.Disagg.Bootstrap = &protocol.BootstrapInfo{Worker: "p", Place: &cluster.ServerPlace{Host: "h"}}
	out, err := serve(t.Context(), t, newServer(f), cluster.RoleDecode, p)
	if err != nil || len(out) != 1 {
		t.Fatalf("%+v, %v", out, err)
	}
	if got := out[0].Timing; got == nil || got.Prefill != "p" || got.PrefillWay != protocol.WayBackground || !got.CacheUnknown || got.PrefillWhy != "" {
		t.Errorf("%+v", got)
	}
}

// A frontend that has gone ends the answer, whatever the server still sends.
func TestAnswersThatNobodyTakes(t *testing.T) {
	gone := errors.New("the caller has gone")
	emitted := 0
	f := &fake{generate: func(_ context.Context, _ *external.Request, emit func(protocol.EngineOutput) error) error {
		for range 3 {
			emitted++
			if err := emit(protocol.EngineOutput{TokenIDs: []uint32{4}}); err == nil {
				t.Error("the server may go on")
			}
		}
		return nil
	}}
	s := newServer(f)
	sent := 0
	err := call(t.Context(), t, s, cluster.RoleDecode, protocol.PreprocessedRequest{TokenIDs: []uint32{1}, Stop: protocol.StopConditions{MaxTokens: 9}}, func(any) error {
		sent++
		return gone
	})
	if !errors.Is(err, gone) || emitted != 3 || sent != 1 {
		t.Errorf("%v after %d emitted and %d sent", err, emitted, sent)
	}
	if st := s.Stats(); st.CancelledTotal != 1 || st.GeneratedTotal != 1 {
		t.Errorf("%+v", st)
	}
}

// A request at a server that ends is one for another worker.
func TestRequestsOfServersThatEnd(t *testing.T) {
	f := &fake{exchange: external.ExchangeSequential}
	s := newServer(f)
	fail := func(ctx context.Context) error {
		s.endOver(errors.New("out of memory"))
		<-ctx.Done()
		return context.Cause(ctx)
	}
	f.generate = func(ctx context.Context, _ *external.Request, _ func(protocol.EngineOutput) error) error {
		return fail(ctx)
	}
	f.prefill = func(ctx context.Context, _ *external.Request) (external.Prefilled, error) {
		return external.Prefilled{}, fail(ctx)
	}
	p := protocol.PreprocessedRequest{TokenIDs: []uint32{1}, Stop: protocol.StopConditions{MaxTokens: 9}}
	p.Disagg.Deadline = time.Now().Add(time.Hour)
	for _, as := range []cluster.Role{cluster.RoleDecode, cluster.RolePrefill} {
		var remote *requestplane.RemoteError
		if _, err := serve(t.Context(), t, s, as, p); !errors.As(err, &remote) || remote.Kind != requestplane.KindUnavailable || remote.Message != "the worker ends: out of memory" {
			t.Errorf("%s: %v", as, err)
		}
	}
	if st := s.Status(); st.FailedLegs != 1 {
		t.Errorf("%+v", st)
	}
}

// silent is a cluster that takes no card.
type silent struct{ host }

func (h *silent) PublishCard(context.Context, *cluster.BootstrapEndpoint) error {
	return errors.New("no store")
}

// A worker without a card serves nothing.
func TestRolesWithoutACard(t *testing.T) {
	for _, as := range []cluster.Role{cluster.RoleDecode, cluster.RolePrefill} {
		s := newServer(&fake{exchange: external.ExchangeSequential})
		h := &silent{host{handlers: map[string]requestplane.Handler{}}}
		r, err := s.NewRole(as, &role.Term{Host: h, Log: s.Log, Meter: metrics.NewWorker(metrics.NewRegistry(), metrics.WorkerLabels{}, time.Now())})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Register(t.Context()); err == nil || len(h.handlers) != 0 {
			t.Errorf("%s: %v, serves %d endpoints", as, err, len(h.handlers))
		}
	}
}
