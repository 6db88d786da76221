package served

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/external"
	"github.com/dynctl/dynctl/internal/metrics"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/worker/role"
)

// A server is asked for an adapter by its name, if it has it and the request is for its model.
func TestAdapterOfARequest(t *testing.T) {
	digest := cluster.AdapterDigest("sum", "tuned")
	for name, tc := range map[string]struct {
		adapter, digest, model string
		kind                   requestplane.Kind
	}{
		"base":             {"", "sum", "m", ""},
		"adapter":          {"tuned", digest, "tuned", ""},
		"by hand":          {"tuned", "", "tuned", ""},
		"base's digest":    {"tuned", "sum", "", requestplane.KindUnavailable},
		"another base":     {"tuned", cluster.AdapterDigest("other", "tuned"), "", requestplane.KindUnavailable},
		"adapter's digest": {"", digest, "", requestplane.KindUnavailable},
		"unknown":          {"sql", cluster.AdapterDigest("sum", "sql"), "", requestplane.KindUnavailable},
	} {
		got := ""
		f := &fake{facts: external.Facts{Adapters: []string{"tuned"}}, exchange: external.ExchangeSequential}
		f.generate = func(_ context.Context, r *external.Request, emit func(protocol.EngineOutput) error) error {
			got = r.Model
			return emit(protocol.EngineOutput{TokenIDs: []uint32{4}, Finish: protocol.FinishLength})
		}
		f.prefill = func(_ context.Context, r *external.Request) (external.Prefilled, error) {
			got = r.Model
			return external.Prefilled{Answer: []protocol.EngineOutput{{Finish: protocol.FinishStop}}}, nil
		}
		p := protocol.PreprocessedRequest{TokenIDs: []uint32{1}, Adapter: tc.adapter, ModelSum: tc.digest, Stop: protocol.StopConditions{MaxTokens: 1}}
		p.Disagg.Deadline = time.Now().Add(time.Minute)
		for _, as := range []cluster.Role{cluster.RoleDecode, cluster.RolePrefill} {
			got = ""
			_, err := serve(t.Context(), t, newServer(f), as, p)
			var remote *requestplane.RemoteError
			if got != tc.model || (err == nil) != (tc.model != "") || err != nil && (!errors.As(err, &remote) || remote.Kind != tc.kind) {
				t.Errorf("%s, %s: the server was asked for %q, %v", name, as, got, err)
			}
		}
	}
}

// Adapters come and go while a server runs: the card is published again each time, and soon after
// one has failed.
func TestAdaptersChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{facts: external.Facts{Adapters: []string{"a"}}}
		s := newServer(f)
		var cards []string
		h := &host{handlers: map[string]requestplane.Handler{}, publish: func() error {
			var card cluster.ModelCard
			s.Describe(&card)
			cards = append(cards, strings.Join(card.Adapters, " "))
			if len(cards) == 2 {
				return errors.New("no store") // the runtime keeps trying
			}
			return nil
		}}
		term := &role.Term{Host: h, Worker: "w", Log: s.Log, Meter: metrics.NewWorker(metrics.NewRegistry(), metrics.WorkerLabels{}, time.Now())}
		r, err := s.NewRole(cluster.RoleDecode, term)
		if err == nil {
			err = r.Register(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = s.Run(ctx)
		}()
		loads := func(wait time.Duration, names ...string) {
			f.set(func(f *fake) { f.facts.Adapters = names })
			time.Sleep(wait + time.Millisecond)
			synctest.Wait()
		}
		loads(s.Waits.Probe, "a", "b")
		loads(s.Waits.Probe, "a", "b") // no news
		loads(s.Waits.Probe)
		f.set(func(f *fake) { f.facts.Adapters = []string{"c"} })
		for range 30 { // failures all the time do not put the look off
			_ = s.failed(t.Context(), &external.Request{PreprocessedRequest: &protocol.PreprocessedRequest{Adapter: "a"}}, errors.New("404"))
			time.Sleep(s.Waits.Doubt / 20)
		}
		synctest.Wait()
		if want := []string{"a", "a b", "", "c"}; !slices.Equal(cards, want) {
			t.Errorf("cards %q, want %q", cards, want)
		}
		if st := s.Status(); !slices.Equal(st.Adapters, []string{"c"}) || st.OddAdapters != 0 {
			t.Errorf("%+v", st)
		}
		r.End()
		loads(s.Waits.Probe, "d")
		if len(cards) != 4 {
			t.Errorf("%d cards after the end of the role", len(cards))
		}
		stop()
		<-ended
	})
}

func TestAdaptersAreBounded(t *testing.T) {
	told := []string{"\x1b[1m", strings.Repeat("x", cluster.MaxAdapterName+1)}
	for i := range cluster.MaxAdapters + 5 {
		told = append(told, fmt.Sprintf("%04d", i))
	}
	s := newServer(&fake{facts: external.Facts{Adapters: told}})
	if st := s.Status(); len(st.Adapters) != cluster.MaxAdapters || st.OddAdapters != 7 || st.Adapters[0] != "0000" {
		t.Errorf("%d adapters from %q, %d left out", len(st.Adapters), st.Adapters[0], st.OddAdapters)
	}
}
