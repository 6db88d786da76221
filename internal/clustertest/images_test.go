package clustertest_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"
	"maps"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/clustertest"
	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/model/modeltest"
	"github.com/dynctl/dynctl/internal/nixl/ucx"
	"github.com/dynctl/dynctl/internal/patience"
)

// seer generates a small LLaVA with everything that its images need; each has 25 rows.
func seer(t *testing.T) (dir string) {
	t.Helper()
	return seerOf(t, "llava", "<image>", "<image>", map[string]any{
		"image_processor_type": "CLIPImageProcessor", "processor_class": "LlavaProcessor",
		"size": map[string]any{"shortest_edge": 70}, "crop_size": map[string]any{"height": 70, "width": 70},
	}, map[string]any{"processor_class": "LlavaProcessor", "patch_size": 14, "vision_feature_select_strategy": "default"})
}

// tiler generates a small SmolVLM, which cuts images of the size of drawings into four tiles.
func tiler(t *testing.T) (dir string) {
	t.Helper()
	return seerOf(t, "smolvlm", "<image>", "<image>", map[string]any{
		"image_processor_type": "SmolVLMImageProcessor", "size": map[string]any{"longest_edge": 48}, "max_image_size": map[string]any{"longest_edge": 24},
	}, map[string]any{"processor_class": "SmolVLMProcessor", "image_seq_len": 4})
}

// gemma generates a small Gemma 3, whose images attend to each other both ways; each has 36
// rows.
func gemma(t *testing.T) (dir string) {
	t.Helper()
	return seerOf(t, "gemma3_text", "<start_of_image>", "<image_soft_token>", map[string]any{
		"image_processor_type": "Gemma3ImageProcessor", "processor_class": "Gemma3Processor", "size": map[string]any{"height": 48, "width": 48},
	}, map[string]any{"processor_class": "Gemma3Processor", "image_seq_length": 36})
}

// tiled generates a small LLaVA 1.6. A drawing is taller than wide: beside the whole there are
// two tiles, one above the other, of whose ten lines four are padding: 25 + 6 × 5 + 6 rows.
func tiled(t *testing.T) (dir string) {
	t.Helper()
	return seerOf(t, "llava_next", "<image>", "<image>", map[string]any{
		"image_processor_type": "LlavaNextImageProcessor", "processor_class": "LlavaNextProcessor", "image_grid_pinpoints": [][]int{{70, 140}, {140, 70}},
		"size": map[string]any{"shortest_edge": 70}, "crop_size": map[string]any{"height": 70, "width": 70},
	}, map[string]any{"processor_class": "LlavaNextProcessor", "patch_size": 14, "vision_feature_select_strategy": "default"})
}

// seerOf generates a small model of a family that reads images: place is what its chat
// template writes for an image, and row the token that stands for a row of one.
func seerOf(t *testing.T, family, place, row string, preprocessor, processor map[string]any) (dir string) {
	t.Helper()
	const token = 2090 // behind those of the tokenizer
	spec := modeltest.Vision()[family]
	spec.Vocab, spec.ContextLen = 2100, 2048
	field := "image_token_index"
	if spec.Images["image_token_id"] != nil {
		field = "image_token_id"
	}
	spec.Images[field] = token
	if family == "gemma3_text" {
		spec.Images["mm_tokens_per_image"] = 36
		spec.Images["vision_config"].(map[string]any)["image_size"] = 48
		spec.Extra = map[string]any{"sliding_window": 20, "sliding_window_pattern": 2}
		spec.Seed = 20 // others repeat one word for every image
	}
	dir = modeltest.Generate(t, spec)
	change := func(name string, change func(m map[string]any)) {
		m := map[string]any{}
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err == nil {
			err = json.Unmarshal(b, &m)
		}
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		change(m)
		if b, err = json.Marshal(m); err == nil {
			err = os.WriteFile(filepath.Join(dir, name), b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	change("tokenizer.json", func(m map[string]any) {
		for i, text := range slices.Compact([]string{row, place}) {
			m["added_tokens"] = append(m["added_tokens"].([]any), map[string]any{
				"id": token + i, "content": text, "special": true, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
			})
		}
	})
	change("tokenizer_config.json", func(m map[string]any) {
		m["chat_template"] = `{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}` +
			`{% if p.type == 'image' %}` + place + `{% else %}{{ p.text }}{% endif %}{% endfor %}{% endif %}{% endfor %} Answer: `
	})
	change("preprocessor_config.json", func(m map[string]any) { maps.Copy(m, preprocessor) })
	change("processor_config.json", func(m map[string]any) { maps.Copy(m, processor) })
	return dir
}

// drawing is a picture as a data URL; each number gives another one.
func drawing(n int) string {
	return sketch(n, 90+(n%7+7)%7, 120)
}

// sketch is a drawing of some size.
func sketch(n, w, h int) string {
	m := image.NewRGBA(image.Rect(0, 0, w, h))
	for x := range m.Rect.Dx() {
		for y := range m.Rect.Dy() {
			m.Set(x, y, color.RGBA{uint8(x * (n + 1)), uint8(y * 2), uint8(x*y + n*40), 255})
		}
	}
	var b bytes.Buffer
	_ = png.Encode(&b, m) // into memory
	return "data:image/png;base64," + base64.StdEncoding.EncodeToString(b.Bytes())
}

// seen is the answer to a question about pictures.
type seen struct {
	text                   string
	prompt, images, cached int
	status                 int
	problem, param         string
	hits                   int      // embeddings that were there already
	encoded                []string // by which workers
	parts                  int      // images whose embeddings were needed
}

// look asks about pictures, which stand between the words of the question.
func look(t *testing.T, c *clustertest.Cluster, urls ...string) seen {
	t.Helper()
	return lookIn(t, c, "auto", urls...)
}

// lookIn is look with the detail that is wanted of all pictures.
func lookIn(t *testing.T, c *clustertest.Cluster, detail string, urls ...string) seen {
	t.Helper()
	s, err := lookAt(t.Context(), c, detail, urls...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// lookAt is lookIn for clients that may leave.
func lookAt(ctx context.Context, c *clustertest.Cluster, detail string, urls ...string) (s seen, err error) {
	parts := []any{map[string]any{"type": "text", "text": strings.Repeat("what do you see here ", 3)}}
	for i, u := range urls {
		parts = append(parts, map[string]any{"type": "image_url", "image_url": map[string]any{"url": u, "detail": detail}}, map[string]any{"type": "text", "text": fmt.Sprint("and ", i)})
	}
	resp, err := c.Post(ctx, "/v1/chat/completions", map[string]any{
		"model": c.Model, "max_tokens": 12, "temperature": 0, "ignore_eos": true, "nvext": map[string]any{"extra_fields": []string{"timing"}}, "messages": []any{map[string]any{"role": "user", "content": parts}},
	})
	if err != nil {
		return s, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return s, err
	}
	var a struct {
		Choices []struct {
			Message struct{ Content string }
		}
		Usage struct {
			Prompt  int `json:"prompt_tokens"`
			Details struct {
				Images int `json:"image_tokens"`
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		}
		Error struct{ Message, Param string }
		NVExt struct {
			Timing struct {
				Images struct {
					Count     int
					Cached    int
					EncodeMS  float64  `json:"encode_ms"`
					EncodedBy []string `json:"encoded_by"`
				}
			}
		}
	}
	if err := json.Unmarshal(b, &a); err != nil {
		return s, fmt.Errorf("%s: %w", b, err)
	}
	s = seen{status: resp.StatusCode, problem: a.Error.Message, param: a.Error.Param, prompt: a.Usage.Prompt, images: a.Usage.Details.Images, cached: a.Usage.Details.Cached,
		parts: a.NVExt.Timing.Images.Count, hits: a.NVExt.Timing.Images.Cached, encoded: a.NVExt.Timing.Images.EncodedBy}
	if len(a.Choices) > 0 {
		s.text = a.Choices[0].Message.Content
	}
	return s, nil
}

// lookAll asks questions about pictures, whose placeholders are so many. Each has an answer of its own,
// that in want if there is any, and the third one has it again from the prefix cache.
func lookAll(t *testing.T, c *clustertest.Cluster, questions [][]string, images []int, want []seen) (got []seen) {
	t.Helper()
	for i, urls := range questions {
		s := look(t, c, urls...)
		if s.status != http.StatusOK || s.text == "" || s.images != images[i] || s.prompt <= s.images {
			t.Fatalf("%d: %+v, want %d placeholders", i, s, images[i])
		}
		for j := range got {
			if got[j].text == s.text {
				t.Errorf("%d and %d have one answer: %q", j, i, s.text)
			}
		}
		if want != nil && (s.text != want[i].text || s.prompt != want[i].prompt) {
			t.Errorf("%d: %+v, want %+v", i, s, want[i])
		}
		got = append(got, s)
	}
	if again := look(t, c, questions[2]...); again.text != got[2].text || again.cached == 0 {
		t.Errorf("again: %+v, want %+v", again, got[2])
	}
	return got
}

// The same pictures give the same text wherever they are encoded and prefilled.
func TestImagesOverHTTP(t *testing.T) {
	if patience.RaceDetector {
		t.Skip("other arithmetic in the same goroutines")
	}
	one, two, three := drawing(1), drawing(2), drawing(3)
	llava, gemma, tiled := seer(t), gemma(t), tiled(t)
	rowsOf := map[string]int{llava: 25, gemma: 36, tiled: 61}
	first := map[string][]seen{}
	for _, tc := range []struct {
		name                    string
		encode, prefill, decode int
		transport, strategy     string
		nodes                   []clustertest.Node
		dir                     string // llava's if empty
		budget                  int    // of tokens in a step
	}{
		{name: "alone", decode: 1},
		{name: "E+PD", encode: 1, decode: 1},
		{name: "E+P+D", encode: 1, prefill: 1, decode: 1, transport: "tcp"},
		{name: "E+P+D over ucx", encode: 1, prefill: 1, decode: 1, transport: ucx.Name},
		{name: "2E+P+2D, prefill first", encode: 2, prefill: 1, decode: 2, strategy: "prefill-first"},
		{name: "E+P+D in two processes", encode: 1, prefill: 1, decode: 1, nodes: []clustertest.Node{{Roles: []string{"decode"}}, {Roles: []string{"encode", "prefill"}, Process: true}}},
		{name: "LLaVA 1.6 alone", decode: 1, dir: tiled},
		{name: "LLaVA 1.6, E+P+D", encode: 1, prefill: 1, decode: 1, dir: tiled},
		{name: "Gemma 3 alone", decode: 1, dir: gemma},
		{name: "Gemma 3 alone, small steps", decode: 1, dir: gemma, budget: 36},
		{name: "Gemma 3, E+P+2D", encode: 1, prefill: 1, decode: 2, dir: gemma, budget: 50},
		{name: "Gemma 3, E+2P+D, prefill first", encode: 1, prefill: 2, decode: 1, strategy: "prefill-first", dir: gemma, budget: 40},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if err := ucx.Available(); tc.transport == ucx.Name && err != nil {
				t.Skip(err)
			}
			dir, last := cmp.Or(tc.dir, llava), 3
			if dir == gemma {
				last = 2 // the prefix cache has the first image of the last question to its end
			}
			c := clustertest.Start(t, clustertest.Options{
				Model: dir, Encode: tc.encode, Prefill: tc.prefill, Decode: tc.decode, Nodes: tc.nodes,
				Engine: cluster.EngineSpec{BlockSize: 16, KVBlocks: 256, MaxBatchTokens: tc.budget},
				Config: func(cfg *config.Dynamod) {
					if tc.transport != "" {
						cfg.NIXL.Transports = []string{tc.transport}
					}
				},
			})
			if tc.prefill > 0 {
				c.WaitRemotePrefill()
				c.Set(map[string]any{"disagg.conditional": "threshold", "disagg.max_local_prefill_length": 0})
			}
			if tc.strategy != "" {
				c.Set(map[string]any{"disagg.strategy": tc.strategy})
			}
			if tc.encode > 0 && tc.nodes == nil { // a worker that computes prompts knows of those that encode
				n := 10
				patience.Until(t, "an encode worker encodes", func() bool {
					n++
					look(t, c, drawing(n))
					return strings.Contains(c.Metrics(), `dynamo_component_images_total{`)
				})
			}
			rows := rowsOf[dir]
			got := lookAll(t, c, [][]string{{one}, {two}, {one, two}, {two, one}, {one, one, three}}, []int{rows, rows, 2 * rows, 2 * rows, 3 * rows}, first[dir])
			for i, s := range got {
				if s.parts != []int{1, 1, 2, 2, last}[i] || i < 2 && len(s.encoded) != 1 {
					t.Errorf("%d: %d images were needed, encoded by %q", i, s.parts, s.encoded)
				}
			}
			if first[dir] == nil {
				first[dir] = got
			}
		})
	}
}

// In low detail a family with tiles computes the whole view alone, which nobody takes for the
// other; to other families it is the same image.
func TestDetailOverHTTP(t *testing.T) {
	if patience.RaceDetector {
		t.Skip("other arithmetic in the same goroutines")
	}
	for name, tc := range map[string]struct {
		dir        string
		whole, low int // tokens
	}{
		"tiles":    {tiler(t), 5 * 4, 4},
		"no tiles": {seer(t), 25, 25},
	} {
		c := clustertest.Start(t, clustertest.Options{Model: tc.dir, Encode: 1, Decode: 1, Engine: cluster.EngineSpec{BlockSize: 16, KVBlocks: 256}})
		whole, low := look(t, c, drawing(1)), lookIn(t, c, "low", drawing(1))
		if whole.status != http.StatusOK || low.status != http.StatusOK || whole.images != tc.whole || low.images != tc.low {
			t.Errorf("%s: %+v\n%+v", name, whole, low)
		}
		if same := tc.whole == tc.low; (whole.text == low.text) != same || same != (len(low.encoded) == 0) {
			t.Errorf("%s: %+v\n%+v", name, whole, low)
		}
		if again := lookIn(t, c, "low", drawing(1)); again.text != low.text || len(again.encoded) != 0 || again.cached == 0 {
			t.Errorf("%s again: %+v, want %+v", name, again, low)
		}
		if again := lookIn(t, c, "high", drawing(1)); again.text != whole.text || again.images != tc.whole {
			t.Errorf("%s in high detail: %+v, want %+v", name, again, whole)
		}
	}
}

// embeddings writes a file of embeddings of n rows.
func embeddings(t *testing.T, path string, n, width int, seed float32) string {
	t.Helper()
	header := fmt.Sprintf(`{"mm_embeddings":{"dtype":"F32","shape":[%d,%d],"data_offsets":[0,%d]}}`, n, width, 4*n*width)
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	b = append(b, header...)
	for i := range n * width {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(seed*float32(i%7-3)/4))
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Files of embeddings stand in place of images, of any number of rows.
func TestEmbeddingsOverHTTP(t *testing.T) {
	dir, local := seer(t), t.TempDir()
	c := clustertest.Start(t, clustertest.Options{Model: dir, Encode: 1, Prefill: 1, Decode: 1, Config: func(cfg *config.Dynamod) { cfg.Multimodal.AllowedLocalMediaPath = local }})
	one := embeddings(t, filepath.Join(local, "one.safetensors"), 9, 32, 1)
	two := embeddings(t, filepath.Join(local, "two.safetensors"), 40, 32, 2)
	a, b := look(t, c, one), look(t, c, two)
	if a.status != http.StatusOK || b.status != http.StatusOK || a.images != 9 || b.images != 40 || a.text == b.text {
		t.Fatalf("%+v\n%+v", a, b)
	}
	if again := look(t, c, "file://"+one); again.text != a.text {
		t.Errorf("again: %+v, want %+v", again, a)
	}
	if s := look(t, c, one, drawing(1), two); s.status != http.StatusOK || s.images != 9+25+40 {
		t.Errorf("beside an image: %+v", s)
	}
	narrow := embeddings(t, filepath.Join(local, "narrow.safetensors"), 9, 31, 1)
	if s := look(t, c, narrow); s.status != http.StatusBadRequest || !strings.Contains(s.problem, "embeddings of 31 values, those of the model have 32") {
		t.Errorf("of another model: %+v", s)
	}
	text := filepath.Join(local, "text.pt")
	if err := os.WriteFile(text, []byte("no tensor"), 0o600); err != nil {
		t.Fatal(err)
	}
	if s := look(t, c, text); s.status != http.StatusBadRequest || !strings.Contains(s.problem, "cannot be read") {
		t.Errorf("no tensors: %+v", s)
	}
}

// What cannot be seen is refused, with the field that names it.
func TestImagesRefusedOverHTTP(t *testing.T) {
	dir := seer(t)
	local := t.TempDir()
	if err := os.WriteFile(filepath.Join(local, "x.png"), []byte("no picture"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := clustertest.Start(t, clustertest.Options{Model: dir, Decode: 1, Config: func(cfg *config.Dynamod) { cfg.Multimodal.AllowedLocalMediaPath = local }})
	good := drawing(1)
	for name, tc := range map[string]struct {
		url, problem string
	}{
		"no picture":      {"data:image/png;base64," + base64.StdEncoding.EncodeToString([]byte("hello, world, this is text")), "cannot be read"},
		"cut":             {good[:len(good)/2/4*4], "cannot be read"},
		"local text":      {filepath.Join(local, "x.png"), "cannot be read"},
		"local":           {"/etc/passwd", "The image cannot be loaded."},
		"missing":         {filepath.Join(local, "y.png"), "The image cannot be loaded."},
		"private":         {"https://127.0.0.1:1/x.png", "The image cannot be loaded."},
		"without TLS":     {"http://example.com/x.png", "https is needed"},
		"not base64":      {"data:image/png;base64,%%%", "not base64"},
		"no url":          {"", "Missing required parameter"},
		"unknown scheme":  {"gopher://x/y.png", "use data:, https:"},
		"embeddings, bad": {filepath.Join(local, "x.pt"), "The image cannot be loaded."},
	} {
		s := look(t, c, good, tc.url)
		if name == "cut" { // the header is right: the encoder finds it
			if s.status != http.StatusBadRequest {
				t.Errorf("%s: %+v", name, s)
			}
			continue
		}
		if s.status != http.StatusBadRequest || !strings.Contains(s.problem, tc.problem) || s.param != "messages[0].content[3].image_url.url" {
			t.Errorf("%s: %+v", name, s)
		}
	}
	if s := look(t, c, good); s.status != http.StatusOK {
		t.Errorf("a good one after these: %+v", s)
	}
	// A client cannot make places for images that it does not send.
	for words, problem := range map[string]string{"<image> and": "2 places for 1 images", "": ""} {
		resp, err := c.Post(t.Context(), "/v1/chat/completions", map[string]any{"model": c.Model, "max_tokens": 2, "messages": []any{map[string]any{"role": "user", "content": []any{
			map[string]any{"type": "image_url", "image_url": good}, map[string]any{"type": "text", "text": words},
		}}}})
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		if err != nil || (resp.StatusCode == http.StatusOK) != (problem == "") || !strings.Contains(string(b), problem) {
			t.Errorf("%q: %s %v", words, b, err)
		}
		_ = resp.Body.Close()
	}
	text := clustertest.Start(t, clustertest.Options{Decode: 1})
	if s := look(t, text, good); s.status != http.StatusBadRequest || !strings.Contains(s.problem, "does not take images") {
		t.Errorf("a model of text: %+v", s)
	}
}

// The process of an encode worker, or of one that reads its embeddings, kills itself at each
// step between them, under load: every question is answered as it is when nothing happens.
func TestKillWhereEmbeddingsMove(t *testing.T) {
	if patience.RaceDetector {
		t.Skip("other arithmetic in the same goroutines")
	}
	if testing.Short() {
		t.Skip("processes that kill themselves take their time")
	}
	dir := seer(t)
	var mu sync.Mutex
	answers := map[int]string{}
	next := 100
	engine := cluster.EngineSpec{BlockSize: 16, KVBlocks: 1024}
	for _, side := range []struct {
		name    string
		deaths  []death
		options clustertest.Options
	}{
		{"encode", deathsOfEncode, clustertest.Options{Encode: 2, Decode: 1, Nodes: []clustertest.Node{{Roles: []string{"decode", "encode"}}, {Roles: []string{"encode"}, Process: true}}}},
		{"reader", deathsOfReader, clustertest.Options{Encode: 1, Prefill: 2, Decode: 1, Nodes: []clustertest.Node{
			{Roles: []string{"decode", "encode", "prefill"}}, {Roles: []string{"prefill"}, Process: true},
		}}},
	} {
		t.Run(side.name, func(t *testing.T) {
			o := side.options
			o.Model, o.Engine = dir, engine
			c := clustertest.Start(t, o)
			if o.Prefill > 0 {
				c.WaitRemotePrefill()
				c.Set(map[string]any{"disagg.conditional": "threshold", "disagg.max_local_prefill_length": 0})
			}
			for _, d := range side.deaths {
				if !d.usual && os.Getenv(soakVariable) == "" {
					continue
				}
				t.Run(d.point, func(t *testing.T) {
					victim := c.Nodes[1]
					if err := victim.DieAt(d.point, 2); err != nil {
						t.Fatal(err)
					}
					stop := make(chan struct{})
					var clients sync.WaitGroup
					var after atomic.Int32
					for range 4 {
						clients.Go(func() {
							for {
								mu.Lock()
								next++
								n := next
								mu.Unlock()
								s := look(t, c, drawing(n), drawing(-n))
								if s.status != http.StatusOK || s.text == "" {
									t.Errorf("%d: %+v", n, s)
									return
								}
								mu.Lock()
								answers[n] = s.text
								mu.Unlock()
								select {
								case <-victim.Died():
									after.Add(1)
								default:
								}
								select {
								case <-stop:
									return
								default:
								}
							}
						})
					}
					waitDead(t, victim)
					patience.Until(t, "questions are answered after the death", func() bool { return after.Load() >= 8 || t.Failed() })
					close(stop)
					clients.Wait()
					victim.Restart()
					c.WaitReady(o.Prefill, o.Decode)
				})
				if t.Failed() {
					return
				}
			}
		})
	}
	if t.Failed() {
		return
	}
	alone := clustertest.Start(t, clustertest.Options{Model: dir, Decode: 1, Engine: engine})
	for n, text := range answers {
		if want := look(t, alone, drawing(n), drawing(-n)); want.text != text {
			t.Errorf("%d: %q, undisturbed %q", n, text, want.text)
		}
	}
	t.Logf("%d answers", len(answers))
}
