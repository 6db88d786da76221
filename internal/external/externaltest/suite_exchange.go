package externaltest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/external"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
)

// Pair is a prefill and a decode server that exchange KV.
type Pair struct {
	Fabric          *Fabric
	PrefillServer   *Double
	DecodeServer    *Double
	Prefill, Decode external.Engine
	meets           *cluster.ServerPlace
	room            uint64
}

// pair starts one, and probes it as a worker does.
func (s Setup) pair(t *testing.T, connector string, loras ...string) *Pair {
	t.Helper()
	p := &Pair{Fabric: NewFabric(), room: 1<<62 + 12345}
	prefill := Options{Loras: loras, Role: cluster.RolePrefill, Connector: connector, Fabric: p.Fabric}
	decode := Options{Loras: loras, Role: cluster.RoleDecode, Connector: connector, Fabric: p.Fabric}
	p.PrefillServer, p.Prefill = s.start(t, prefill, nil)
	p.DecodeServer, p.Decode = s.start(t, decode, nil)
	a, err := p.Prefill.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b, err := p.Decode.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if a.Pair == "" || a.Pair != b.Pair {
		t.Errorf("pair keys %q and %q", a.Pair, b.Pair)
	}
	if p.meets = a.Meets; (p.Prefill.Exchange() == external.ExchangeConcurrent) != (a.Meets != nil) || b.Meets != nil {
		t.Errorf("exchange %q, places %+v and %+v", p.Prefill.Exchange(), a.Meets, b.Meets)
	}
	t.Cleanup(func() {
		if wrong := p.Fabric.Wrong(); len(wrong) > 0 && !t.Failed() {
			t.Errorf("legs did not match: %v", wrong)
		}
	})
	return p
}

// meet returns the next room; nil for an exchange in sequence.
func (p *Pair) meet() *external.Meeting {
	if p.meets == nil {
		return nil
	}
	p.room++
	return &external.Meeting{ServerPlace: *p.meets, Room: p.room}
}

// run runs both legs of a request.
func (p *Pair) run(ctx context.Context, t testing.TB, r *external.Request) (external.Prefilled, Answer, error) {
	t.Helper()
	second := *r
	return p.runBoth(ctx, t, r, &second)
}

// runBoth runs both legs as workers do: the first failure ends the other leg.
func (p *Pair) runBoth(ctx context.Context, t testing.TB, first, second *external.Request) (external.Prefilled, Answer, error) {
	t.Helper()
	if first.Meeting = p.meet(); first.Meeting == nil {
		pre, err := p.Prefill.Prefill(ctx, first)
		if err != nil || pre.Answer != nil {
			return pre, Answer{}, err
		}
		second.Handoff = pre.Handoff
		a, err := Collect(ctx, t, p.Decode, second)
		return pre, a, err
	}
	second.Meeting = first.Meeting
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var pre external.Prefilled
	var failed error
	var leg sync.WaitGroup
	leg.Go(func() {
		if pre, failed = p.Prefill.Prefill(ctx, first); failed != nil {
			cancel(failed)
		}
	})
	a, err := Collect(ctx, t, p.Decode, second)
	if err != nil {
		cancel(err)
	}
	leg.Wait()
	return pre, a, err
}

func (s Setup) exchange(t *testing.T) {
	for _, connector := range s.Connectors {
		t.Run(connector, func(t *testing.T) {
			t.Run("tokens", func(t *testing.T) { s.exchangeTokens(t, connector) })
			t.Run("bodies", func(t *testing.T) { s.exchangeBodies(t, connector) })
			t.Run("leg failures", func(t *testing.T) { s.legFailures(t, connector) })
			t.Run("cancel", func(t *testing.T) { s.cancelLegs(t, connector) })
			t.Run("several answers", func(t *testing.T) { s.severalAnswers(t, connector) })
		})
	}
	t.Run("none", func(t *testing.T) {
		_, e := s.start(t, Options{}, nil)
		_, err := e.Prefill(t.Context(), Ask(Prompt(4), 4))
		Kind(t, err, requestplane.KindUnavailable)
		r := Ask(Prompt(4), 4)
		r.Handoff = []byte(`{}`)
		_, err = Collect(t.Context(), t, e, r)
		Kind(t, err, requestplane.KindUnavailable)
	})
}

func (s Setup) exchangeTokens(t *testing.T, connector string) {
	p := s.pair(t, connector)
	for i, n := range []int{20, 33, 100} {
		prompt := Prompt(n)
		all := Continue(Hash(512), prompt, 9)
		r := Ask(prompt, 9)
		r.Stop.MinTokens = 5
		r.Stop.StopTokenIDs = []uint32{all[7]}
		pre, a, err := p.run(t.Context(), t, r)
		if err != nil {
			t.Fatal(err)
		}
		s.same(t, a, all[:7])
		if pre.PromptTokens != n || pre.CachedTokens != cachedOf(n) || a.Usage.PromptTokens != n || a.Usage.CompletionTokens != 7 {
			t.Errorf("prefilled %+v, usage %+v, of %d tokens", pre, a.Usage, n)
		}
		if moved := p.Fabric.Moved(); moved != i+1 {
			t.Errorf("the KV of %d prompts was moved, of %d", moved, i+1)
		}
		if a, b := p.PrefillServer.Last(t), p.DecodeServer.Last(t); a.Header.Get("X-Request-Id") != "req-1" || b.Header.Get("X-Request-Id") != "req-1" {
			t.Error("the legs have no common X-Request-Id")
		}
	}
	if n := p.Fabric.Computed(); n != 0 {
		t.Errorf("%d prompts were computed again", n)
	}
}

func (s Setup) exchangeBodies(t *testing.T, connector string) {
	p := s.pair(t, connector)
	want := Text(Continue(Hash(512), PromptOf([]byte(messages)), 6))
	text := Text(Continue(Hash(512), PromptOf([]byte("once")), 6))
	for i, test := range []struct {
		api  protocol.API
		body string
		text string
	}{
		{protocol.APIChat, `{"messages":` + messages + `,"max_completion_tokens":6,"stream":true,"stream_options":{"include_usage":true},` + forbidden + `}`, want},
		{protocol.APIChat, `{"messages":` + messages + `,"max_tokens":6,"min_tokens":3}`, want},
		{protocol.APICompletions, `{"prompt":"once","max_tokens":6,"stream":true}`, text},
	} {
		_, a, err := p.run(t.Context(), t, AskBody(test.api, test.body))
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := readRaw(t, a.Raw); got != test.text {
			t.Errorf("%s: text %q, want %q", test.body, got, test.text)
		}
		if p.Fabric.Moved() != i+1 {
			t.Errorf("%s: no KV was moved", test.body)
		}
	}
}

func (s Setup) legFailures(t *testing.T, connector string) {
	p, n := s.pair(t, connector), 0
	for name, ask := range asks() {
		for _, test := range []struct {
			f    Failure
			want requestplane.Kind
		}{{Internal, requestplane.KindUnavailable}, {Busy, requestplane.KindOverloaded}, {Cut, requestplane.KindUnavailable}, {Refuse, requestplane.KindInvalidArgument}} {
			for _, server := range []*Double{p.PrefillServer, p.DecodeServer} {
				n++
				r := ask()
				r.RequestID = fmt.Sprintf("failing-%d", n)
				server.FailFor(r.RequestID, test.f)
				start := time.Now()
				_, _, err := p.run(t.Context(), t, r)
				// A decode server may be done when the prefill server's answer is cut.
				if concurrent := p.meets != nil; concurrent && test.f == Cut && err == nil {
					continue
				}
				if remote := (*requestplane.RemoteError)(nil); !errors.As(err, &remote) || remote.Kind != test.want {
					t.Errorf("%s, failure %d: %v, want %s", name, test.f, err, test.want)
				}
				if took := time.Since(start); took > patience/2 {
					t.Errorf("%s, failure %d: the other leg held it up for %v", name, test.f, took)
				}
			}
		}
		if _, _, err := p.run(t.Context(), t, ask()); err != nil {
			t.Errorf("%s: after failures: %v", name, err)
		}
	}
}

func (s Setup) cancelLegs(t *testing.T, connector string) {
	p, n := s.pair(t, connector), 0
	cause := errors.New("the client left")
	for name, ask := range asks() {
		for _, server := range []*Double{p.PrefillServer, p.DecodeServer} {
			ctx, cancel := context.WithCancelCause(t.Context())
			n++
			r := ask()
			r.RequestID = fmt.Sprintf("stalling-%d", n)
			server.FailFor(r.RequestID, Stall)
			go func() { // ends with the request, which cancel ends
				for !server.Saw(r.RequestID) && ctx.Err() == nil {
					time.Sleep(time.Millisecond)
				}
				cancel(cause)
			}()
			_, _, err := p.run(ctx, t, r)
			cancel(cause)
			if err != nil && !errors.Is(err, cause) {
				t.Errorf("%s: %v, want the cause", name, err)
			}
		}
	}
	// Between the legs nothing is to be done: the next exchange goes on.
	if p.meets == nil {
		ctx, cancel := context.WithCancelCause(t.Context())
		r := Ask(Prompt(20), 4)
		pre, err := p.Prefill.Prefill(ctx, r)
		if err != nil {
			t.Fatal(err)
		}
		cancel(cause)
		r.Handoff = pre.Handoff
		if _, err := Collect(ctx, t, p.Decode, r); !errors.Is(err, cause) {
			t.Errorf("a second leg after the end: %v", err)
		}
	}
	prompt := Prompt(20)
	_, a, err := p.run(t.Context(), t, Ask(prompt, 4))
	if err != nil {
		t.Fatal(err)
	}
	s.same(t, a, Continue(Hash(512), prompt, 4))
}

func (s Setup) severalAnswers(t *testing.T, connector string) {
	p := s.pair(t, connector)
	for _, body := range []string{`{"messages":[],"n":2}`, `{"prompt":["a","b"]}`, `{"prompt":[[1],[2]]}`} {
		r := AskBody(protocol.APIChat, body)
		r.Meeting = p.meet()
		_, err := p.Prefill.Prefill(t.Context(), r)
		Kind(t, err, requestplane.KindInvalidArgument)
	}
	if n := len(p.PrefillServer.Seen()); n != 0 {
		t.Errorf("%d requests reached the server", n)
	}
	if err := external.Splittable([]byte(`{"prompt":[1,2],"n":1}`)); err != nil {
		t.Error(err)
	}
	if !slices.Contains([]external.Exchange{external.ExchangeSequential, external.ExchangeConcurrent}, p.Prefill.Exchange()) {
		t.Errorf("exchange %q", p.Prefill.Exchange())
	}
}
