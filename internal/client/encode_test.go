package client

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
)

// An encode worker has no tokens and no sequences: its speed is not known rather than zero,
// and what waits there is in no figure of the others.
func TestTallyOfEncodeWorkers(t *testing.T) {
	bubble(t, func(t *testing.T, y *tally) {
		encode := cluster.WorkerStatus{Name: "worker-2", Role: cluster.RoleEncode, InstanceID: 7, State: cluster.StateReady}
		encode.Stats.Waiting, encode.Stats.RemoteWait, encode.Stats.PreemptedTotal = 5, 6, 7
		decode := cluster.WorkerStatus{Name: "worker-1", Role: cluster.RoleDecode, InstanceID: 8, State: cluster.StateReady}
		decode.Stats.Waiting, decode.Stats.RemoteWait = 1, 2
		var s cluster.Snapshot
		for range 3 {
			time.Sleep(time.Second)
			for _, st := range []*cluster.WorkerStatus{&decode, &encode} {
				st.UpdatedAt = time.Now()
				st.Stats.StepsTotal++
				st.Stats.StepNanosTotal += uint64(time.Second / 2)
				st.Stats.GeneratedTotal += 10
				st.Stats.RequestsTotal += 8
				st.Stats.EncodedTotal += 2
				st.Stats.ImagesCachedTotal += 6
				st.Stats.TransferBytesTotal += 1 << 20
				y.workerStatus(event(t, *st))
			}
			s = fill(y, viewOf(decode, encode), nil)
		}
		if w := s.Workers[1]; w.TokS != nil || w.HitRate != nil || !is(w.Busy, 0.5) {
			t.Errorf("encode worker: %s tokens/s, busy %s", show(w.TokS), show(w.Busy))
		}
		if r := s.Workers[1].Images; r == nil || !is(r.EncodedS, 2) || !is(r.HitRate, 0.75) || !is(r.MovedBS, 1<<20) {
			t.Errorf("images: %+v", r)
		}
		if s.Workers[0].Images != nil {
			t.Errorf("images of a decode worker: %+v", s.Workers[0].Images)
		}
		if !is(s.Workers[0].TokS, 10) {
			t.Errorf("decode worker: %s tokens/s", show(s.Workers[0].TokS))
		}
		if q := s.Queue; *q.Waiting != 1 || *q.RemoteWait != 2 || q.Preempted != 0 {
			t.Errorf("queue %+v", q)
		}
		if q := fill(y, viewOf(encode), nil).Queue; q.Waiting != nil || q.RemoteWait != nil {
			t.Errorf("queue of encode workers alone: %+v", q)
		}
	})
}

// Nobody asks an encode worker about KV: it has no cache to show or to clear, no path that
// blocks take, and no queue of sequences.
func TestEncodeWorkersHaveNoKV(t *testing.T) {
	c := lab(t)
	refuse := func(context.Context, *requestplane.Request, func(any) error) error {
		return errors.New("an encode worker was asked about KV")
	}
	for name, role := range map[string]cluster.Role{"worker-1": cluster.RoleDecode, "worker-2": cluster.RoleEncode} {
		id := grant(t, c, time.Minute)
		assign(t, c, cluster.Assignment{Name: name, Role: role, Node: "id-1", Desire: cluster.DesireRun})
		st := cluster.WorkerStatus{Name: name, Role: role, InstanceID: id, State: cluster.StateReady, UpdatedAt: time.Now()}
		st.Stats.MaxSeqs = 4
		put(t, c, cluster.StatusKey(c.Namespace, name), st, id)
		clearKV, paths := refuse, refuse
		if role == cluster.RoleDecode {
			clearKV = func(_ context.Context, _ *requestplane.Request, send func(any) error) error {
				return send(protocol.ClearedKV{Blocks: 3})
			}
			paths = func(_ context.Context, _ *requestplane.Request, send func(any) error) error {
				return send(cluster.Path{})
			}
		}
		plane(t, c, role.Component(), cluster.EndpointClearKV, "id-1", name, id, clearKV)
		plane(t, c, role.Component(), cluster.EndpointPaths, "id-1", name, id, paths)
	}
	v := view(t, c)
	if got := c.ClearCaches(t.Context(), v); len(got) != 1 || got[0].Worker != "worker-1" || got[0].Blocks != 3 {
		t.Errorf("cleared %+v", got)
	}
	if got := c.ClearCaches(t.Context(), v, "worker-2", "worker-9"); len(got) != 2 || got[0].Error != "is an encode worker, and has no cache" || got[1].Error != ErrNoCache.Error() {
		t.Errorf("cleared by name: %+v", got)
	}
	if m := c.Measure(t.Context(), v, time.Minute, 100); len(m.Paths)+len(m.Failed) != 0 {
		t.Errorf("measured %+v", m)
	}
	if got := (&cachesWatch{}).caches(v.Workers(), newTally(), false).Workers; len(got) != 1 || got[0].Worker != "worker-1" {
		t.Errorf("caches of %+v", got)
	}
	list, err := (&Queues{c: c}).List(t.Context(), v)
	if err != nil || len(list) != 1 || list[0].Name != "worker-1" {
		t.Errorf("queues %+v, %v", list, err)
	}
	if events := v.Unmet(); len(events) != 0 {
		t.Errorf("unmet: %q", events)
	}
}

// A worker keeps its role where that is encode, and no other worker takes it: the order is
// refused and declares nothing.
func TestSetRoleOfEncodeWorkers(t *testing.T) {
	c := lab(t)
	if _, err := c.Declare(t.Context(), func(t *cluster.Topology, _ bool) error {
		t.Model, t.Prefill, t.Decode, t.Encode = cluster.ModelSpec{Name: "m", Path: "/m"}, 1, 1, 1
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for name, role := range map[string]cluster.Role{"worker-1": cluster.RolePrefill, "worker-2": cluster.RoleDecode, "worker-3": cluster.RoleEncode} {
		assign(t, c, cluster.Assignment{Name: name, Role: role, Node: "id-1", Desire: cluster.DesireRun})
	}
	for _, tc := range []struct {
		worker string
		to     cluster.Role
		want   string
	}{
		{"worker-2", cluster.RoleEncode, "from decode to encode: an encode worker has only the vision tower"},
		{"worker-3", cluster.RoleDecode, "from encode to decode: an encode worker has only the vision tower"},
		{"worker-2", "cook", "from decode to cook"},
	} {
		if _, err := c.SetRole(t.Context(), tc.worker, tc.to); !errors.Is(err, ErrNoFlip) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s as %s: %v", tc.worker, tc.to, err)
		}
	}
	if topo, err := c.Topology(t.Context()); err != nil || topo.Generation != 1 || topo.Encode != 1 {
		t.Errorf("%+v %v", topo, err)
	}
	topo, err := c.SetRole(t.Context(), "worker-1", cluster.RoleDecode)
	if err != nil || topo.Prefill != 0 || topo.Decode != 2 || topo.Encode != 1 || topo.Flip.Worker != "worker-1" {
		t.Errorf("%+v %v", topo, err)
	}
}
