package worker

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/engine/mock"
	"github.com/dynctl/dynctl/internal/metrics"
	"github.com/dynctl/dynctl/internal/worker/media"
)

// Whoever encodes says how many images, how many it had, and what was moved; metrics have the
// durations of encoding and of the transfer at both ends.
func TestFiguresOfImages(t *testing.T) {
	w := newWorld(t)
	a := w.album()
	registry := metrics.NewRegistry()
	with := func(e media.Encoder) func(*Config) {
		return func(c *Config) {
			sees(e)(c)
			c.Metrics = registry
		}
	}
	enc := w.start("worker-1", cluster.RoleEncode, with(&tower{}))
	d, other := w.start("worker-2", cluster.RoleDecode, with(&tower{})), w.start("worker-3", cluster.RoleDecode, with(nil))
	for _, x := range []*running{d, other} {
		eventually(t, "the encode worker is known", func() bool { return len(x.sees(cluster.RoleEncode)) == 1 })
	}
	r := seeded(t)
	part := a.put("door", 20, 30)
	ask := func(x *running, id string) {
		t.Helper()
		req := request(id, prompt(r, 90), 5)
		req.Disagg.Force = "local"
		means := a.illustrate(&req, part)
		check(t, w.generate(t.Context(), x.Name(), req), means, 5)
	}
	const size = 4 * mock.EmbeddingSize * 30
	where := func(x *running, want cluster.EmbeddingsAt) {
		t.Helper()
		if got := w.embeddingsAt(x, part.Key); got != want {
			t.Errorf("%s: %+v, want %+v", x.Name(), got, want)
		}
	}
	first := cluster.EmbeddingsAt{Encoder: "worker-1", Why: "first by content"}
	where(enc, cluster.EmbeddingsAt{Encoder: "worker-1", Why: "no encode worker"})
	where(d, first)
	ask(d, "first")
	where(enc, cluster.EmbeddingsAt{Cached: true})
	where(d, cluster.EmbeddingsAt{Cached: true})
	where(other, first)
	ask(d, "again") // which the decode worker has
	ask(other, "elsewhere")
	restful(t, enc, d, other)
	type figures struct{ asked, read, left, encoded, cached, transfers, bytes, kept, keptBytes uint64 }
	of := func(x *running) figures {
		st := x.Status().Stats
		if st.EmbeddingsLimit == 0 {
			t.Errorf("%s has no cache", x.Name())
		}
		f := figures{0, 0, 0, st.EncodedTotal, st.ImagesCachedTotal, st.TransfersTotal, st.TransferBytesTotal, uint64(st.Embeddings), uint64(st.EmbeddingsBytes)}
		if !x.Role().HoldsKV() {
			f.asked, f.read, f.left = st.RequestsTotal, st.FinishedTotal, st.CancelledTotal
		}
		return f
	}
	kept := of(enc).keptBytes
	if kept < size {
		t.Errorf("%d bytes of embeddings are in the cache", kept)
	}
	for x, want := range map[*running]figures{
		enc:   {2, 2, 0, 1, 1, 2, 2 * size, 1, kept},
		d:     {0, 0, 0, 0, 1, 0, 0, 1, kept},
		other: {0, 0, 0, 0, 0, 0, 0, 1, kept},
	} {
		if got := of(x); got != want {
			t.Errorf("%s: %+v, want %+v", x.Name(), got, want)
		}
	}
	text := exposition(registry)
	has := func(text string, series ...string) {
		t.Helper()
		for _, s := range series {
			name, labels, _ := strings.Cut(s, " ")
			found := false
			for line := range strings.Lines(text) {
				found = found || strings.HasPrefix(line, name+"{") && all(line, strings.Fields(labels)...)
			}
			if !found {
				t.Errorf("no series %s", s)
			}
		}
	}
	has(text,
		fmt.Sprintf(`dynamo_component_embeddings_transfer_bytes_total direction="out" worker="worker-1" } %d`, 2*size),
		fmt.Sprintf(`dynamo_component_embeddings_transfer_bytes_total direction="in" worker="worker-2" } %d`, size),
		`dynamo_component_embeddings_transfer_duration_seconds_count direction="in" worker="worker-3" } 1`,
		`dynamo_component_embeddings_transfer_duration_seconds_count direction="out" worker="worker-1" } 2`,
		`dynamo_component_images_total outcome="computed" worker="worker-1" } 1`,
		`dynamo_component_images_total outcome="cached" worker="worker-1" } 1`,
		`dynamo_component_encode_seconds_count worker="worker-1" } 1`)
	if strings.Contains(text, "dynamo_component_kv_transfer_bytes_total{") {
		t.Error("embeddings count as KV")
	}

	// Without it, whoever computes the prompt encodes, and counts that.
	enc.stop(errors.New("over"))
	eventually(t, "the encode worker has left", func() bool { return len(d.sees(cluster.RoleEncode)) == 0 })
	part = a.put("window", 20, 30)
	where(d, cluster.EmbeddingsAt{Encoder: "worker-2", Why: "no encode worker"})
	where(other, cluster.EmbeddingsAt{Why: "no encode worker"})
	ask(d, "itself")
	if st := d.Status().Stats; st.EncodedTotal != 1 {
		t.Errorf("it encoded %d images itself", st.EncodedTotal)
	}
	has(exposition(registry), `dynamo_component_images_total outcome="computed" worker="worker-2" } 1`, `dynamo_component_encode_seconds_count worker="worker-2" } 1`)
	restful(t, d, other)
}

// all reports whether a line has all parts.
func all(line string, parts ...string) bool {
	for _, p := range parts {
		if !strings.Contains(line, p) {
			return false
		}
	}
	return true
}

// What an encode worker has in hand is known to those who ask, and a drain counts it.
func TestImagesInHand(t *testing.T) {
	w := newWorld(t)
	a := w.album()
	e := &tower{gate: make(chan struct{})}
	enc, d := w.start("worker-1", cluster.RoleEncode, sees(e)), w.start("worker-3", cluster.RoleDecode, sees(nil))
	eventually(t, "it is known", func() bool { return len(d.sees(cluster.RoleEncode)) == 1 })
	ask := w.askActivity(enc)
	if got := ask(0); len(got.Images) != 0 || got.ImagesTotal != 0 {
		t.Errorf("at rest: %+v", got)
	}
	req := request("r~1", prompt(seeded(t), 90), 5)
	req.Disagg.Force = "local"
	means := a.illustrate(&req, a.put("one", 5, 20), a.put("two", 40, 30))
	done := make(chan result, 1)
	go func() { done <- w.generate(t.Context(), "", req) }()
	eventually(t, "one is encoded, one waits", func() bool {
		st := enc.Status().Stats
		return e.calls.Load() == 1 && st.Running == 1 && st.Waiting == 1
	})
	got := ask(0)
	rows := 0
	for _, m := range got.Images {
		rows += m.Tokens
		if m.RequestID != "r" || m.Worker != "worker-3" || m.State != cluster.ImageEncoding || m.Cached || m.AgeMS < 0 {
			t.Errorf("%+v", m)
		}
	}
	if got.ImagesTotal != 2 || rows != 50 {
		t.Errorf("in hand: %+v", got)
	}
	if got := ask(1); len(got.Images) != 1 || got.ImagesTotal != 2 {
		t.Errorf("one of them: %+v", got)
	}
	enc.drain(t)
	eventually(t, "the drain counts them", func() bool {
		s := enc.Status().Drain
		return s != nil && s.Step == cluster.DrainSequences && s.Sequences == 2 && s.Left == 2 && len(s.Open) == 2 && s.Open[0].RequestID == "r~1" && s.Finished == 0
	})
	e.gate <- struct{}{}
	e.gate <- struct{}{}
	check(t, <-done, means, 5)
	if s := enc.drained(t); s.Left != 0 || s.Finished != 2 || s.Cancelled != 0 || s.Sequences != 2 {
		t.Errorf("%+v", s)
	}
	restful(t, d)
}
