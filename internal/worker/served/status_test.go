package served

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/external"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/protocol"
)

// follower is a follower of KV events that has none.
type follower struct{ running chan struct{} }

func (f *follower) Tell(engine.KVSink) {}

func (f *follower) Run(ctx context.Context) {
	close(f.running)
	<-ctx.Done()
}

func (f *follower) Resident(_ context.Context, at func()) ([]uint64, error) {
	at()
	return []uint64{3, 5}, nil
}

func (f *follower) Forget() {}

func (f *follower) Status() cluster.ServerEvents { return cluster.ServerEvents{Endpoint: "tcp://a:2"} }

// A card tells the limits of the server, and with whom it exchanges KV.
func TestCardsOfServers(t *testing.T) {
	facts := external.Facts{BlockSize: 16, KVBlocks: 400, MaxSeqs: 8, MaxModelLen: 4096, TensorParallel: 2, Pair: "nixl", Meets: &cluster.ServerPlace{Host: "h", Port: 1}}
	for name, tc := range map[string]struct {
		exchange external.Exchange
		mode     cluster.Role
		as       cluster.Role
		want     cluster.RuntimeConfig
	}{
		"alone": {external.ExchangeNone, "", cluster.RoleDecode, cluster.RuntimeConfig{}},
		"takes KV": {
			external.ExchangeSequential, "", cluster.RoleDecode,
			cluster.RuntimeConfig{Exchange: string(external.ExchangeSequential), Pair: "nixl"},
		},
		"meets": {
			external.ExchangeConcurrent, cluster.RolePrefill, cluster.RolePrefill,
			cluster.RuntimeConfig{Exchange: string(external.ExchangeConcurrent), Pair: "nixl", Meets: facts.Meets},
		},
		"second legs only": {
			external.ExchangeConcurrent, cluster.RoleDecode, cluster.RoleDecode,
			cluster.RuntimeConfig{Exchange: string(external.ExchangeConcurrent), Pair: "nixl", NeedsPrefill: true},
		},
		"second legs, or all": {
			external.ExchangeSequential, cluster.RoleDecode, cluster.RoleDecode,
			cluster.RuntimeConfig{Exchange: string(external.ExchangeSequential), Pair: "nixl"},
		},
	} {
		f := facts
		f.Mode = string(tc.mode)
		card := cluster.ModelCard{WorkerType: tc.as, ContextLength: 99, BlockSize: 32}
		newServer(&fake{facts: f, exchange: tc.exchange}).Describe(&card)
		want := tc.want
		want.Backend, want.TotalKVBlocks, want.MaxNumSeqs, want.TensorParallel = cluster.BackendVLLM, 100, 8, 2
		if got := card.Runtime; card.ContextLength != 4096 || card.BlockSize != 64 || got.Meets != want.Meets || !equalJSON(t, got, want) {
			t.Errorf("%s: %+v, runtime %+v, want %+v", name, card, got, want)
		}
	}
	// What a server does not tell is as it was.
	card := cluster.ModelCard{WorkerType: cluster.RoleDecode, ContextLength: 99}
	newServer(&fake{}).Describe(&card)
	if card.ContextLength != 99 || card.Runtime.TensorParallel != 1 || card.Runtime.TotalKVBlocks != 0 {
		t.Errorf("%+v", card)
	}
}

func equalJSON(t *testing.T, a, b any) bool {
	t.Helper()
	x, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	y, err := json.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	return string(x) == string(y)
}

func TestStatusOfServers(t *testing.T) {
	f := &fake{facts: external.Facts{Version: "0.9.2", BlockSize: 16, MaxModelLen: 4096, Pair: "nixl"}}
	s := newServer(f, func(c *Config) {
		c.URL, c.Connector, c.Host, c.Exited, c.Events = "http://a:1", "NixlConnector", "a", make(chan struct{}), &follower{}
	})
	want := cluster.ServerStatus{
		Backend: cluster.BackendVLLM, Version: "0.9.2", URL: "http://a:1", Started: true, Model: "m", Connector: "NixlConnector", Pair: "nixl", Host: "a", BlockSize: 16, MaxModelLen: 4096,
		Events: &cluster.ServerEvents{Endpoint: "tcp://a:2"},
	}
	if got := s.Status(); !equalJSON(t, got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if _, err := s.look(t.Context()); err != nil || s.Status().NoLoad != "it tells no figures" {
		t.Errorf("%+v, %v", s.Status(), err)
	}
	f.loadErr = errors.New("404")
	if _, err := s.look(t.Context()); err == nil || s.Status().NoLoad != "404" {
		t.Errorf("%+v, %v", s.Status(), err)
	}
	f.loadErr, f.load.Running = nil, new(1)
	if _, err := s.look(t.Context()); err != nil || s.Status().NoLoad != "" {
		t.Errorf("%+v, %v", s.Status(), err)
	}
	looked := 0
	if blocks, err := s.Resident(t.Context(), func() { looked++ }); err != nil || len(blocks) != 2 || looked != 1 {
		t.Errorf("%v, %v, looked %d times", blocks, err, looked)
	}
	// A server that somebody else runs, without events, where servers meet.
	f.facts.Meets = &cluster.ServerPlace{Host: "localhost"}
	s = newServer(f)
	if got := s.Status(); got.Started || got.Events != nil || got.SideChannel != "localhost" {
		t.Errorf("%+v", got)
	}
	if blocks, err := s.Resident(t.Context(), func() { looked++ }); err != nil || len(blocks) != 0 || looked != 2 {
		t.Errorf("%v, %v, looked %d times", blocks, err, looked)
	}
}

func TestSequencesOfServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(&fake{})
		var all []*request
		for _, id := range []string{"a", "b", "c", "d", "e"} {
			r, err := s.admit(&protocol.PreprocessedRequest{RequestID: id, TokenIDs: make([]uint32, 100)}, "")
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, r)
			time.Sleep(time.Second)
		}
		s.computed(all[1], 64)
		s.computed(all[1], 3) // once is enough
		s.generated(all[1], 7)
		list, n := s.Sequences(3)
		if n != 5 || len(list) != 3 || list[0].ID != "a" || list[1].ID != "b" || list[2].ID != "c" {
			t.Fatalf("%+v of %d", list, n)
		}
		if want := (cluster.Sequence{ID: "a", State: cluster.SequencePrefill, PromptTokens: 100, AgeMS: 5000}); list[0] != want {
			t.Errorf("%+v, want %+v", list[0], want)
		}
		if want := (cluster.Sequence{ID: "b", State: cluster.SequenceDecode, PromptTokens: 100, CachedTokens: 64, ComputedTokens: 107, OutTokens: 7, AgeMS: 4000}); list[1] != want {
			t.Errorf("%+v, want %+v", list[1], want)
		}
		if st := s.Stats(); st.Prefilling != 4 || st.PrefillTokens != 400 || st.CachedTokensTotal != 64 || st.GeneratedTotal != 7 {
			t.Errorf("%+v", st)
		}
		if list, n := s.Sequences(0); list != nil || n != 5 {
			t.Errorf("%+v of %d", list, n)
		}
	})
}

// A server in use is asked for its load and followed for its events, and a failure of its load is
// told once.
func TestServersAreWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{loadErr: errors.New("404")}
		events := &follower{running: make(chan struct{})}
		var log patience.Buffer
		s := newServer(f, func(c *Config) { c.Events, c.Log = events, slog.New(slog.NewTextHandler(&log, nil)) })
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		<-events.running
		time.Sleep(10*time.Second + time.Millisecond)
		f.set(func(f *fake) {
			if f.asked < 10 || f.asked > 12 {
				t.Errorf("asked %d times for its load", f.asked)
			}
			f.loadErr, f.load.Running = nil, new(4)
		})
		time.Sleep(2 * time.Second)
		if n := s.Stats().Running; n != 4 {
			t.Errorf("%d run", n)
		}
		f.set(func(f *fake) { f.loadErr = errors.New("500") })
		time.Sleep(2 * time.Second)
		stop()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if n := strings.Count(log.String(), "does not tell its load"); n != 2 {
			t.Errorf("told %d times:\n%s", n, &log)
		}
	})
}

// A server that cannot be probed for a moment is still the same.
func TestProbesThatFail(t *testing.T) {
	s := newServer(&fake{unwell: errors.New("timeout")})
	if err := s.same(t.Context()); !errors.Is(err, external.ErrNotReady) {
		t.Error(err)
	}
}
