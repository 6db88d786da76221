package clustertest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/clustertest"
	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/nixl/ucx"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/recall/drawn"
)

const (
	sightPictures = 10 / slowdown
	sightRight    = 8 // of ten codes, at least: the built-in model reads more
)

// glare damages the embeddings that workers compute prompts with, on their way into the
// model.
type glare struct {
	on   atomic.Bool
	hits atomic.Int64
}

func (g *glare) around(as cluster.Assignment, b engine.Backend) engine.Backend {
	if as.Role == cluster.RoleEncode {
		return b
	}
	return &glaredBackend{Backend: b, g: g}
}

type glaredBackend struct {
	engine.Backend
	g *glare
}

func (b *glaredBackend) Step(ctx context.Context, batch []engine.BatchSeq) error {
	if b.g.on.Load() {
		batch = slices.Clone(batch)
		for i := range batch {
			batch[i].Rows = b.g.turned(batch[i].Rows)
		}
	}
	return b.Backend.Step(ctx, batch)
}

// turned returns the rows with other signs.
func (g *glare) turned(rows [][]float32) [][]float32 {
	if rows == nil {
		return nil
	}
	out := make([][]float32, len(rows))
	for i, row := range rows {
		if row == nil {
			continue // a token, not an embedding
		}
		g.hits.Add(1)
		for _, v := range row {
			out[i] = append(out[i], -v)
		}
	}
	return out
}

// door asks for the code on a drawn door, and tells who encoded it.
func door(t *testing.T, c *clustertest.Cluster, n uint64) (right bool, text string, by []string) {
	t.Helper()
	p := drawn.Draw(rand.New(rand.NewPCG(n, 99)), drawn.Code)
	ask, _ := p.Ask("code")
	resp, err := c.Post(t.Context(), "/v1/chat/completions", map[string]any{
		"model": c.Model, "max_tokens": 30, "temperature": 0, "nvext": map[string]any{"extra_fields": []string{"timing"}},
		"messages": []any{map[string]any{"role": "user", "content": []any{
			map[string]any{"type": "image_url", "image_url": map[string]any{"url": p.URL()}}, map[string]any{"type": "text", "text": ask.Text()},
		}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s %v", resp.Status, b, err)
	}
	var a struct {
		Choices []struct {
			Message struct{ Content string }
		}
		NVExt struct {
			Timing struct {
				Images struct {
					EncodedBy []string `json:"encoded_by"`
				}
			}
		}
	}
	if err := json.Unmarshal(b, &a); err != nil || len(a.Choices) != 1 {
		t.Fatalf("%s: %v", b, err)
	}
	return ask.Right(a.Choices[0].Message.Content), a.Choices[0].Message.Content, a.NVExt.Timing.Images.EncodedBy
}

// An encode worker sees doors, a prefill worker reads the embeddings, and the decode worker
// tells the codes, whatever carried the embeddings. Where they are damaged on their way, no
// code is told: the answers come from them.
func TestSight(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("what is computed, by the ways that shorter tests take, too")
	}
	for _, transport := range []string{"local", ucx.Name, "tcp"} {
		t.Run(transport, func(t *testing.T) {
			if err := ucx.Available(); transport == ucx.Name && err != nil {
				t.Skip(err)
			}
			g := &glare{}
			c := clustertest.Start(t, clustertest.Options{
				Model: cluster.BuiltinVisionName, Encode: 1, Prefill: 1, Decode: 1, Backend: g.around, Engine: cluster.EngineSpec{BlockSize: 16, KVBlocks: 256},
				Config: func(cfg *config.Dynamod) { cfg.NIXL.Transports = []string{transport} },
			})
			c.WaitRemotePrefill()
			c.Set(map[string]any{"disagg.conditional": "threshold", "disagg.max_local_prefill_length": 0})
			first := uint64(1000)
			patience.Until(t, "the encode worker encodes", func() bool {
				first++
				_, _, by := door(t, c, first)
				return len(by) == 1
			})
			right := 0
			for n := range uint64(sightPictures) {
				ok, text, by := door(t, c, n)
				if ok {
					right++
				}
				if len(by) != 1 {
					t.Errorf("%d: encoded by %q, answered %q", n, by, text)
				}
			}
			if 10*right < sightRight*sightPictures {
				t.Errorf("%d of %d codes were told", right, sightPictures)
			}
			g.on.Store(true)
			for n := range uint64(sightPictures) {
				if ok, text, _ := door(t, c, 100+n); ok {
					t.Errorf("%d: told from damaged embeddings: %q", n, text)
				}
			}
			if g.hits.Load() != 16*sightPictures {
				t.Errorf("%d embeddings were damaged, want 16 of each of %d pictures", g.hits.Load(), sightPictures)
			}
		})
	}
}

// dynctl doctor tells sound embeddings from damaged ones by what the model answers.
func TestDoctorFindsDamagedEmbeddings(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("what the test of damaged KV shows, for embeddings")
	}
	g := &glare{}
	c := clustertest.Start(t, clustertest.Options{
		Model: cluster.BuiltinVisionName, Encode: 2, Prefill: 1, Decode: 1, Backend: g.around, Engine: cluster.EngineSpec{BlockSize: 16, KVBlocks: 512},
	})
	c.WaitRemotePrefill()
	first := uint64(2000)
	patience.Until(t, "an encode worker encodes", func() bool {
		first++
		_, _, by := door(t, c, first)
		return len(by) == 1
	})
	sights := func() (code int, statuses []string) {
		code, all := modelCheck(t, c)
		for _, s := range all {
			if strings.HasPrefix(s, "sight ") {
				statuses = append(statuses, s)
			}
		}
		slices.Sort(statuses)
		return code, statuses
	}
	var names []string
	for _, w := range c.Watch.View().Workers() {
		if w.Role == cluster.RoleEncode {
			names = append(names, w.Name)
		}
	}
	want := func(status string) (out []string) {
		for _, e := range names {
			for _, w := range c.Watch.View().Workers() {
				if w.Role != cluster.RoleEncode {
					out = append(out, fmt.Sprintf("sight %s %s %s", e, w.Name, status))
				}
			}
		}
		slices.Sort(out)
		return out
	}
	if code, got := sights(); code != 0 || !slices.Equal(got, want("ok")) {
		t.Errorf("sound: exit %d, %q, want %q", code, got, want("ok"))
	}
	g.on.Store(true)
	if code, got := sights(); code != 1 || !slices.Equal(got, want("fail")) {
		t.Errorf("damaged: exit %d, %q", code, got)
	}
}
