package live

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/kube"
	"github.com/dynctl/dynctl/internal/kube/kubetest"
	"github.com/dynctl/dynctl/internal/planner"
)

// scaleServer is an API server with the Deployment w, of 3 pods.
type scaleServer struct {
	s      *kubetest.Server
	client *kube.Client
	cfg    Config
	// lose has the answers to writes lost, and skip the writes.
	lose, skip bool
}

func newServer(t *testing.T) *scaleServer {
	s := &scaleServer{s: kubetest.Offline(), cfg: Config{Log: slog.New(slog.DiscardHandler)}}
	deployments := kube.Resource{Group: "apps", Version: "v1", Plural: "deployments", Kind: "Deployment"}
	s.s.Serve(deployments, true)
	s.client = s.s.Direct("k", nil)
	s.client.HTTP.Transport = &loser{s, s.client.HTTP.Transport}
	object := map[string]any{"metadata": map[string]any{"name": "w"}, "spec": map[string]any{"replicas": 3}, "status": map[string]any{"replicas": 3}}
	if err := s.client.Create(t.Context(), deployments, object, &kube.Object{}); err != nil {
		t.Fatal(err)
	}
	return s
}

type loser struct {
	s    *scaleServer
	next http.RoundTripper
}

// RoundTrip implements [http.RoundTripper].
func (l *loser) RoundTrip(r *http.Request) (*http.Response, error) {
	if !l.s.lose || r.Method == http.MethodGet {
		return l.next.RoundTrip(r)
	}
	if !l.s.skip {
		resp, err := l.next.RoundTrip(r)
		if err != nil {
			return nil, err
		}
		resp.Body.Close()
	}
	return nil, errors.New("the answer is lost")
}

func leading(context.Context) error { return nil }

// One object may have the pods of both roles, and any kind of object can be scaled.
func TestSharedPods(t *testing.T) {
	server := newServer(t)
	deployment := cluster.ScaleTarget{Resource: "deployments", Group: "apps", Name: "w"}
	p, err := claimPods(t.Context(), server.cfg, server.client, Targets{Prefill: deployment, Decode: deployment}, leading)
	if err != nil || len(p.objects) != 1 || len(p.objects[0].roles) != 2 {
		t.Fatalf("%+v %v", p, err)
	}
	o := p.objects[0]
	v := View{Assignments: map[string]cluster.Assignment{}}
	for _, name := range []string{"worker-1", "worker-2", "worker-3"} {
		v.Assignments[name] = cluster.Assignment{Name: name, Role: cluster.RoleDecode, Node: name}
	}
	p.look(t.Context(), t0)
	if pending, _ := p.pending(t0, planner.Plan{Prefill: 1, Decode: 1}); len(pending) != 1 {
		t.Errorf("%+v", pending)
	}
	follow := func(plan planner.Plan, replicas int, waits string) {
		t.Helper()
		if err := p.follow(t.Context(), v, plan, 8); err != nil || o.scale.Spec.Replicas != replicas || !strings.Contains(p.waits, waits) {
			t.Errorf("%v: %d pods, %q, %v", plan, o.scale.Spec.Replicas, p.waits, err)
		}
	}
	follow(planner.Plan{Prefill: 1, Decode: 1}, 3, "deployments.apps/w keeps its pods until 2 of 3 workers are left")
	delete(v.Assignments, "worker-3")
	follow(planner.Plan{Prefill: 1, Decode: 1}, 2, "")
	follow(planner.Plan{Prefill: 3, Decode: 2}, 5, "deployments.apps/w has 3 pods of 5")
	if n := server.s.Requests(http.MethodPatch, "deployments/scale"); n != 3 {
		t.Errorf("%d writes", n)
	}
}

// A write whose answer is lost may have been done: its number is not somebody else's.
func TestLostAnswer(t *testing.T) {
	server := newServer(t)
	p, err := claimPods(t.Context(), server.cfg, server.client, Targets{Decode: cluster.ScaleTarget{Resource: "deployments", Group: "apps", Name: "w"}}, leading)
	if err != nil {
		t.Fatal(err)
	}
	o := p.objects[0]
	for _, done := range []bool{false, true} {
		server.lose, server.skip = true, !done
		if err := p.order(t.Context(), o, 5); err == nil {
			t.Fatal("no error")
		}
		server.lose, server.skip = false, false
		p.look(t.Context(), t0)
		if want := map[bool]int{false: 3, true: 5}[done]; o.scale.Spec.Replicas != want || !p.handAt.IsZero() {
			t.Errorf("%d pods, %s", o.scale.Spec.Replicas, p.hand)
		}
	}
	if err := server.client.Patch(t.Context(), o.resource, "w", map[string]any{"spec": map[string]any{"replicas": 3}}, &kube.Object{}); err != nil {
		t.Fatal(err)
	}
	if p.look(t.Context(), t0); p.hand != "Somebody else scaled deployments.apps/w from 5 to 3" {
		t.Errorf("%q", p.hand)
	}
}

// A worker that moves because planners drain its node is no order of somebody else.
func TestMovesOfPlanners(t *testing.T) {
	for by, want := range map[string]string{"planner@node-1": "", "ann@host": "worker-2 is being replaced"} {
		v := View{
			Declared: &Declared{}, Cordons: map[string]cluster.Cordon{"n1": {Node: "n1", By: by}},
			Assignments: map[string]cluster.Assignment{
				"worker-1": {Name: "worker-1", Role: cluster.RoleDecode, Node: "n1", Desire: cluster.DesireRun},
				"worker-2": {Name: "worker-2", Role: cluster.RoleDecode, Node: "n2", Desire: cluster.DesireRun, Replaces: "worker-1"},
			},
		}
		if got := ordered(v); got != want {
			t.Errorf("%s: %q", by, got)
		}
	}
}
