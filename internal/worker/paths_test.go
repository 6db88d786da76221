package worker

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/runtime/runtimetest"
)

// askPaths asks a worker over the request plane.
func (w *world) askPaths(r *running, req protocol.PathsRequest) (out []cluster.Path, err error) {
	w.t.Helper()
	c := runtimetest.Client(w.t, w.c.Runtime(w.t, "asker"), r.Role().Component(), cluster.EndpointPaths)
	if err := c.Wait(w.t.Context(), 1); err != nil {
		w.t.Fatal(err)
	}
	all := c.Instances()
	i := slices.IndexFunc(all, func(inst cluster.Instance) bool { return inst.Worker == r.Name() })
	if i < 0 {
		w.t.Fatalf("%s has no such endpoint", r.Name())
	}
	s, err := c.Call(w.t.Context(), all[i], "paths", nil, req)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	for {
		var p cluster.Path
		switch err := s.Recv(w.t.Context(), &p); {
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			return nil, err
		}
		out = append(out, p)
	}
}

// TestPaths asks both ends of a path, and both of one that is not there.
func TestPaths(t *testing.T) {
	w := newWorld(t)
	w.tcp = true
	decode := w.start("worker-2", cluster.RoleDecode)
	prefill := w.start("worker-1", cluster.RolePrefill)
	there, err := w.askPaths(prefill, protocol.PathsRequest{Peer: "worker-2", Test: true})
	if err != nil || len(there) != 1 {
		t.Fatalf("%+v, %v", there, err)
	}
	p := there[0]
	if !p.OK() || p.From != "worker-1" || p.To != "worker-2" || p.Transport != "tcp" || p.Test == nil || p.Test.WriteGBps <= 0 || p.Test.ReadGBps <= 0 || p.Test.RTTMicros <= 0 {
		t.Errorf("there: %+v, test %+v", p, p.Test)
	}
	if len(p.Candidates) != 2 || p.Candidates[0].Verdict != "not_forced" || p.Candidates[1].Verdict != cluster.PathChosen || len(p.Fallbacks()) != 0 {
		t.Errorf("candidates: %+v", p.Candidates)
	}
	all, err := w.askPaths(prefill, protocol.PathsRequest{})
	if err != nil || len(all) != 1 || !all[0].OK() || all[0].Test == nil {
		t.Errorf("all paths: %+v, %v", all, err)
	}

	back, err := w.askPaths(decode, protocol.PathsRequest{Peer: "worker-1", Test: true})
	if err != nil || len(back) != 1 {
		t.Fatalf("%+v, %v", back, err)
	}
	// A decode worker reads held KV from a prefill worker.
	if b := back[0]; !b.OK() || b.From != "worker-2" || b.To != "worker-1" || b.Transport != "tcp" || b.Test == nil || b.Test.ReadGBps <= 0 {
		t.Errorf("back: %+v", b)
	}
	nobody, err := w.askPaths(prefill, protocol.PathsRequest{Peer: "worker-9", Test: true})
	if err != nil || len(nobody) != 1 || nobody[0].OK() || !strings.Contains(nobody[0].Failed, "worker-9 offers no memory") {
		t.Errorf("to nobody: %+v, %v", nobody, err)
	}
	var remote *requestplane.RemoteError
	if _, err := w.askPaths(prefill, protocol.PathsRequest{Peer: "worker-1"}); !errors.As(err, &remote) || remote.Kind != requestplane.KindInvalidArgument {
		t.Errorf("to itself: %v", err)
	}

	// A peer that has gone is no path.
	decode.stop(errors.New("enough"))
	eventually(t, "the path has failed", func() bool {
		ps, err := w.askPaths(prefill, protocol.PathsRequest{Peer: "worker-2", Test: true})
		return err == nil && len(ps) == 1 && !ps[0].OK() && ps[0].Failed != ""
	})
}
