package worker

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/engine/mock"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
)

// gridRequest is a request with two images in grids, and what the backend answers to it.
func (a *album) gridRequest(id string, n int) (req protocol.PreprocessedRequest, want []uint32) {
	req = request(id, prompt(seeded(a.t), 200), n)
	one, two := a.put("one "+id, 5, 12), a.put("two "+id, 120, 10)
	one.Grid, two.Grid = protocol.Grid{T: 1, H: 2, W: 6}, protocol.Grid{T: 1, H: 5, W: 2}
	means := a.illustrate(&req, one, two)
	p := engine.NewPositions(protocol.Spans(req.Media), []engine.Grid{{T: 1, H: 2, W: 6}, {T: 1, H: 5, W: 2}})
	for i, token := range means {
		means[i] = mock.Placed(token, i, p.At(i))
	}
	for range n {
		next := mock.Continue(means, 1, vocab)[0]
		want = append(want, next)
		means = append(means, mock.Placed(next, len(means), p.At(len(means))))
	}
	return req, want
}

// The tokens of a prompt whose images stand in grids have the same positions wherever it is
// prefilled, and after its sequence moved.
func TestImagesInGrids(t *testing.T) {
	w := newWorld(t)
	w.opts.Grids = true
	a := w.album()
	enc := w.start("worker-1", cluster.RoleEncode, sees(&tower{}))
	pre := w.start("worker-2", cluster.RolePrefill, sees(nil))
	d := w.start("worker-3", cluster.RoleDecode, sees(nil))
	h := w.hops()
	ask := func(name string, way func(protocol.PreprocessedRequest) protocol.PreprocessedRequest, prefill string, want protocol.PrefillWay) {
		t.Helper()
		req, tokens := a.gridRequest(name, 8)
		got := w.generate(t.Context(), "worker-3", way(req))
		if got.err != nil || !slices.Equal(got.tokens, tokens) {
			t.Errorf("%s: %v %v, want %v", name, got.tokens, got.err, tokens)
		}
		if got.timing == nil || got.timing.Prefill != prefill || got.timing.PrefillWay != want {
			t.Errorf("%s: %+v", name, got.timing)
		}
	}
	ask("queue", func(p protocol.PreprocessedRequest) protocol.PreprocessedRequest { return p }, "worker-2", protocol.WayQueue)
	ask("pull", func(p protocol.PreprocessedRequest) protocol.PreprocessedRequest {
		p, _ = h.hold("worker-2", p, patience.Soon)
		return p
	}, "worker-2", protocol.WayPull)
	ask("background", func(p protocol.PreprocessedRequest) protocol.PreprocessedRequest {
		room := h.room("worker-2", 77)
		h.call(t.Context(), "worker-2", p, room, patience.Soon)
		return inRoom(p, room)
	}, "worker-2", protocol.WayBackground)
	ask("here", func(p protocol.PreprocessedRequest) protocol.PreprocessedRequest {
		p.Disagg.Force = "local"
		return p
	}, "local", "")

	for name, change := range map[string]func(p *protocol.PreprocessedRequest){
		"no grid": func(p *protocol.PreprocessedRequest) {
			p.Media[0].Grid, p.Media[1].Grid = protocol.Grid{}, protocol.Grid{}
		},
		"one grid":      func(p *protocol.PreprocessedRequest) { p.Media[1].Grid = protocol.Grid{} },
		"too many rows": func(p *protocol.PreprocessedRequest) { p.Media[0].Grid = protocol.Grid{T: 1, H: 3, W: 6} },
	} {
		req, _ := a.gridRequest(name, 8)
		change(&req)
		var remote *requestplane.RemoteError
		if got := w.generate(t.Context(), "worker-3", req); !errors.As(got.err, &remote) || remote.Kind != requestplane.KindInvalidArgument {
			t.Errorf("%s: %v", name, got.err)
		}
	}
	restful(t, enc, pre, d)
}

func TestImagesInGridsMove(t *testing.T) {
	w := newWorld(t)
	w.opts.Grids = true
	w.opts.StepTime = func(int, int) time.Duration { return 4 * time.Millisecond }
	a := w.album()
	enc := w.start("worker-1", cluster.RoleEncode, sees(&tower{}))
	one, two := w.start("worker-2", cluster.RoleDecode, sees(nil)), w.start("worker-3", cluster.RoleDecode, sees(nil))
	req, want := a.gridRequest("r", 400)
	done := make(chan followed, 1)
	go func() { done <- w.follow(t.Context(), "worker-2", req) }()
	eventually(t, "it generates, or ends", func() bool { return one.engine().Stats().GeneratedTotal > 5 || len(done) > 0 })
	one.drain(t)
	if got := <-done; got.err != nil || fmt.Sprint(got.tokens) != fmt.Sprint(want) || got.moves != 1 || got.replays != 0 {
		t.Errorf("moved %d times, replayed %d times: %v %v, want %v", got.moves, got.replays, got.tokens, got.err, want)
	}
	one.drained(t)
	restful(t, two, enc)
}
