package clustertest_test

import (
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/clustertest"
	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/patience"
)

// Fifty questions are on their way when the process of the only encode worker is killed. Each
// gets the answer that it gets where nothing happens.
func TestEncodeWorkerIsKilled(t *testing.T) {
	if patience.RaceDetector {
		t.Skip("other arithmetic in the same goroutines")
	}
	const questions = 50
	dir, engine := seer(t), cluster.EngineSpec{BlockSize: 16, KVBlocks: 1024}
	c := clustertest.Start(t, clustertest.Options{Model: dir, Engine: engine, Encode: 1, Prefill: 1, Decode: 1, Nodes: []clustertest.Node{
		{Roles: []string{"decode", "prefill"}}, {Roles: []string{"encode"}, Process: true},
	}})
	c.WaitRemotePrefill()
	c.Set(map[string]any{"disagg.conditional": "threshold", "disagg.max_local_prefill_length": 0})
	victim := c.Nodes[1]
	encoder := workerIn(t, c, victim, cluster.RoleEncode)
	n := 1000
	patience.Until(t, "the other process encodes", func() bool {
		n++
		return slices.Contains(look(t, c, drawing(n)).encoded, encoder)
	})
	answers := make([]seen, questions)
	var answered atomic.Int32
	var clients sync.WaitGroup
	for i := range answers {
		clients.Go(func() {
			answers[i] = look(t, c, drawing(i), drawing(100+i), drawing(i))
			answered.Add(1)
		})
	}
	patience.Until(t, "some questions are answered", func() bool { return answered.Load() >= 3 })
	victim.Kill()
	if at := answered.Load(); at == questions {
		t.Error("no question was left when the worker was killed")
	}
	clients.Wait()
	by := map[bool]int{}
	for i, s := range answers {
		if s.status != http.StatusOK || s.text == "" || s.images != 3*25 {
			t.Errorf("%d: %+v", i, s)
		}
		by[slices.Contains(s.encoded, encoder)]++
	}
	if by[true] == 0 || by[false] == 0 {
		t.Errorf("%d answers from images that the killed worker encoded, %d from others", by[true], by[false])
	}
	alone := clustertest.Start(t, clustertest.Options{Model: dir, Decode: 1, Engine: engine})
	for i, s := range answers {
		if want := look(t, alone, drawing(i), drawing(100+i), drawing(i)); want.text != s.text {
			t.Errorf("%d: %q, undisturbed %q", i, s.text, want.text)
		}
	}
}

// An image gives the same text when its KV are gone, from embeddings that are still there, and
// when these are gone, too.
func TestImagesAfterEviction(t *testing.T) {
	if patience.RaceDetector {
		t.Skip("other arithmetic in the same goroutines")
	}
	local := t.TempDir()
	c := clustertest.Start(t, clustertest.Options{Model: seer(t), Engine: cluster.EngineSpec{BlockSize: 16, KVBlocks: 256}, Encode: 1, Prefill: 1, Decode: 1, Config: func(cfg *config.Dynamod) {
		cfg.Multimodal.AllowedLocalMediaPath, cfg.Multimodal.EmbeddingCacheMB = local, 1
	}})
	c.WaitRemotePrefill()
	c.Set(map[string]any{"disagg.conditional": "threshold", "disagg.max_local_prefill_length": 0})
	one, two := drawing(1), drawing(2)
	clearKV := func() {
		resp, err := c.Post(t.Context(), "/clear_kv_blocks", nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Fatal(resp.Status)
		}
	}
	first := look(t, c, one, two)
	if first.status != http.StatusOK || first.text == "" || first.parts != 2 || first.hits != 0 {
		t.Fatalf("%+v", first)
	}
	if again := look(t, c, one, two); again.text != first.text || again.cached == 0 {
		t.Errorf("with its KV: %+v, want %+v", again, first)
	}
	clearKV()
	if again := look(t, c, one, two); again.text != first.text || again.cached != 0 || again.parts != 2 || again.hits != 2 {
		t.Errorf("without its KV: %+v, want %+v", again, first)
	}
	// Five files of which a cache keeps three: no worker has the images any more.
	for i := range 5 {
		file := embeddings(t, filepath.Join(local, fmt.Sprint(i, ".safetensors")), 1700, 32, float32(i+1))
		if s := look(t, c, file); s.status != http.StatusOK || s.images != 1700 {
			t.Fatalf("%+v", s)
		}
	}
	clearKV()
	if again := look(t, c, one, two); again.text != first.text || again.cached != 0 || again.parts != 2 || again.hits != 0 {
		t.Errorf("without its embeddings: %+v, want %+v", again, first)
	}
}
