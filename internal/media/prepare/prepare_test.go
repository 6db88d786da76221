package prepare

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/media/picture"
)

// recorded is a case of scripts/reference/processors.py.
type recorded struct {
	Name                    string
	Preprocessor, Processor json.RawMessage
	Plans                   []recordedPlan
	Pictures                []struct {
		W, H   int
		Shapes [][]int
		SHA256 []string
	}
}

type recordedPlan struct {
	w, h, tokens int
	text         string
	grid         []int // nil: refused
}

func (p *recordedPlan) UnmarshalJSON(b []byte) error {
	return json.Unmarshal(b, &[]any{&p.w, &p.h, &p.tokens, &p.text, &p.grid})
}

func cases(t testing.TB) []recorded {
	t.Helper()
	content, err := os.ReadFile("testdata/processors.json")
	if err != nil {
		t.Fatal(err)
	}
	var list []recorded
	if err := json.Unmarshal(content, &list); err != nil {
		t.Fatal(err)
	}
	if len(list) < 15 {
		t.Fatalf("%d cases", len(list))
	}
	return list
}

func (c recorded) load(t testing.TB) *Processor {
	t.Helper()
	p, err := Load(Files{Preprocessor: c.Preprocessor, Processor: c.Processor})
	if err != nil {
		t.Fatalf("%s: %v", c.Name, err)
	}
	return p
}

// sample makes noise over gradients, as the function of the same name in pictures.py.
func sample(w, h int, seed uint64) *picture.Image {
	m := picture.New(w, h)
	for i := range m.Pix {
		n := uint64(i)
		x, y, c := n/3%uint64(w), n/(3*uint64(w)), n%3
		m.Pix[i] = uint8(x*(5+c) + y*3*(c+1) + (n*2654435761+seed*40503)%(1<<32)>>26)
	}
	return m
}

func digest(v []float32) string {
	b := make([]byte, 0, 4*len(v))
	for _, f := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(f))
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])[:32]
}

func TestPlanEqualsReference(t *testing.T) {
	for _, c := range cases(t) {
		p := c.load(t)
		for _, want := range c.Plans {
			got, err := p.Plan(want.w, want.h)
			if want.grid == nil {
				if !errors.Is(err, ErrPicture) {
					t.Errorf("%s, %d x %d: %v, want it refused", c.Name, want.w, want.h, err)
				}
				continue
			}
			if err != nil {
				t.Fatalf("%s, %d x %d: %v", c.Name, want.w, want.h, err)
			}
			grid := Grid{T: want.grid[0], H: want.grid[1], W: want.grid[2]}
			if len(want.grid) == 5 {
				grid.UnpaddedH, grid.UnpaddedW = want.grid[3], want.grid[4]
			}
			sum := sha256.Sum256([]byte(got.Text))
			if got.Tokens != want.tokens || got.Grid != grid || hex.EncodeToString(sum[:])[:16] != want.text {
				t.Errorf("%s, %d x %d: %d tokens in %+v, want %d in %+v; text %.80q", c.Name, want.w, want.h, got.Tokens, got.Grid, want.tokens, grid, got.Text)
			}
		}
	}
}

// All numbers are equal in every bit.
func TestPrepareEqualsReference(t *testing.T) {
	for _, c := range cases(t) {
		p := c.load(t)
		for _, want := range c.Pictures {
			in, err := p.Prepare(sample(want.W, want.H, 3))
			if err != nil {
				t.Fatalf("%s, %d x %d: %v", c.Name, want.W, want.H, err)
			}
			if in.Views == nil {
				rows := in.Grid.T * in.Grid.H * in.Grid.W
				if len(in.Patches) != rows*in.PatchSize || rows != want.Shapes[0][0] || in.PatchSize != want.Shapes[0][1] || digest(in.Patches) != want.SHA256[0] {
					t.Errorf("%s, %d x %d: %d patches of %d differ from those of %v", c.Name, want.W, want.H, rows, in.PatchSize, want.Shapes[0])
				}
				continue
			}
			if len(in.Views) != len(want.Shapes) {
				t.Errorf("%s, %d x %d: %d views, want %d", c.Name, want.W, want.H, len(in.Views), len(want.Shapes))
				continue
			}
			for i, v := range in.Views {
				if v.H != want.Shapes[i][1] || v.W != want.Shapes[i][2] || digest(v.Pixels) != want.SHA256[i] {
					t.Errorf("%s, %d x %d: view %d of %d x %d differs", c.Name, want.W, want.H, i, v.W, v.H)
				}
			}
		}
	}
}

// imageTokens are those that embeddings take the place of.
var imageTokens = map[string]string{"<start_of_image>": "<image_soft_token>"}

// A plan is made without pixels, and holds for whatever picture has the size.
func TestPrepareKeepsToThePlan(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for _, c := range cases(t) {
		if c.Name == "smolvlm" || c.Name == "smolvlm-cap" || c.Name == "qwen3-vl" {
			continue // many megabytes each; smaller ones take the same paths
		}
		p := c.load(t)
		token := imageTokens[p.Placeholder()]
		if token == "" {
			token = p.Placeholder()
		}
		var grid [3]int
		if patch, _, merge := p.Cuts(); patch > 0 {
			grid = [3]int{1, merge, 7 * merge}
		}
		if ready, err := p.PlanRows(7, grid); err != nil || ready.Tokens != 7 || strings.Count(ready.Text, token) != 7 || strings.Contains(ready.Text, "<end_of_image>") != (token != p.Placeholder()) {
			t.Errorf("%s, embeddings that come ready-made: %+v %v", c.Name, ready, err)
		}
		for range 4 {
			w, h := 1+rng.IntN(160), 1+rng.IntN(160)
			plan, planErr := p.Plan(w, h)
			in, err := p.Prepare(picture.New(w, h))
			if (planErr == nil) != (err == nil) {
				t.Fatalf("%s, %d x %d: plan %v, prepare %v", c.Name, w, h, planErr, err)
			}
			if err != nil {
				continue
			}
			if in.Plan != plan {
				t.Errorf("%s, %d x %d: %+v, planned %+v", c.Name, w, h, in.Plan, plan)
			}
			if n := strings.Count(plan.Text, token); n != plan.Tokens || n == 0 {
				t.Errorf("%s, %d x %d: %d tokens in the text, %d planned", c.Name, w, h, n, plan.Tokens)
			}
			if len(in.Views) != plan.Views || len(in.Patches) != plan.Grid.T*plan.Grid.H*plan.Grid.W*in.PatchSize {
				t.Errorf("%s, %d x %d: %d views and %d numbers in patches for %+v", c.Name, w, h, len(in.Views), len(in.Patches), plan.Grid)
			}
			for _, v := range in.Views {
				if v.W != plan.W || v.H != plan.H || len(v.Pixels) != 3*v.W*v.H {
					t.Errorf("%s, %d x %d: a view of %d x %d, planned %d x %d", c.Name, w, h, v.W, v.H, plan.W, plan.H)
				}
			}
		}
	}
}

func TestPlanRefusesPictures(t *testing.T) {
	for _, c := range cases(t) {
		p := c.load(t)
		for _, size := range [][2]int{{0, 5}, {5, 0}, {-3, 5}, {1 << 21, 5}} {
			if _, err := p.Plan(size[0], size[1]); !errors.Is(err, ErrPicture) {
				t.Errorf("%s: %v: %v", c.Name, size, err)
			}
		}
		_, err := p.Plan(1, 1<<20)
		if errors.Is(err, ErrPicture) != strings.HasPrefix(c.Name, "qwen") {
			t.Errorf("%s: a strip: %v", c.Name, err)
		}
		if _, err := p.Prepare(picture.New(0, 0)); !errors.Is(err, ErrPicture) {
			t.Errorf("%s: nothing: %v", c.Name, err)
		}
	}
}

// The files may be the checkpoint's, but nothing they say lets a picture take all memory.
func TestPlanBoundsTokensAndPixels(t *testing.T) {
	for name, files := range map[string]Files{
		"tokens of CLIP":  {Preprocessor: []byte(`{"crop_size": 400}`), Processor: []byte(`{"processor_class": "LlavaProcessor", "patch_size": 1}`)},
		"tokens of tiles": {Preprocessor: []byte(`{}`), Processor: []byte(`{"processor_class": "Idefics3Processor", "image_seq_len": 60000}`)},
		"tokens of Qwen":  {Preprocessor: []byte(`{"max_pixels": 67108864, "patch_size": 4}`), Processor: []byte(`{"processor_class": "Qwen2VLProcessor"}`)},
		"pixels of CLIP":  {Preprocessor: []byte(`{"crop_size": 9000}`), Processor: []byte(`{"processor_class": "LlavaProcessor", "patch_size": 100}`)},
	} {
		p, err := Load(files)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if _, err := p.Plan(4000, 3000); !errors.Is(err, ErrPicture) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestViewsSayWhereTheyLie(t *testing.T) {
	for _, c := range cases(t) {
		if c.Name != "smolvlm-tiny" && c.Name != "llava-next-tiny" {
			continue
		}
		in, err := c.load(t).Prepare(picture.New(200, 70))
		if err != nil {
			t.Fatal(err)
		}
		var places [][2]int
		for r := range in.Grid.H {
			for col := range in.Grid.W {
				places = append(places, [2]int{r + 1, col + 1})
			}
		}
		if c.Name == "smolvlm-tiny" {
			places = append(places, [2]int{})
		} else {
			places = append([][2]int{{}}, places...)
		}
		if len(places) < 3 || len(places) != len(in.Views) {
			t.Fatalf("%s: %d views in a grid of %+v", c.Name, len(in.Views), in.Grid)
		}
		for i, v := range in.Views {
			if [2]int{v.Row, v.Col} != places[i] {
				t.Errorf("%s: view %d lies at %d, %d, want %v", c.Name, i, v.Row, v.Col, places[i])
			}
		}
	}
}

func TestTextOfSmolVLM(t *testing.T) {
	p, err := Load(Files{
		Preprocessor: []byte(`{"size": {"longest_edge": 8}, "max_image_size": {"longest_edge": 4}}`),
		Processor:    []byte(`{"processor_class": "SmolVLMProcessor", "image_seq_len": 1}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	if p.Placeholder() != "<image>" || !p.DecodeOptions().OverWhite {
		t.Errorf("placeholder %q, %+v", p.Placeholder(), p.DecodeOptions())
	}
	plan, err := p.Plan(2, 1)
	const want = "<fake_token_around_image><row_1_col_1><image><fake_token_around_image><row_1_col_2><image>\n" +
		"\n<fake_token_around_image><global-img><image><fake_token_around_image>"
	if plan.Text != want || err != nil {
		t.Errorf("%q, %v", plan.Text, err)
	}
}

// In low detail, pictures are prepared as without their division into tiles, where there is one.
func TestLow(t *testing.T) {
	divided := 0
	for _, c := range cases(t) {
		p := c.load(t)
		if k, ok := p.family.(*tiles); !ok || !k.split {
			if p.Low() != p {
				t.Errorf("%s: another way, and there is one", c.Name)
			}
			continue
		}
		divided++
		fields := map[string]any{}
		if err := json.Unmarshal(c.Preprocessor, &fields); err != nil {
			t.Fatal(err)
		}
		fields["do_image_splitting"] = false
		text, err := json.Marshal(fields)
		if err != nil {
			t.Fatal(err)
		}
		whole := recorded{Name: c.Name, Preprocessor: text, Processor: c.Processor}.load(t)
		low := p.Low()
		if low == p || low.Placeholder() != p.Placeholder() || low.DecodeOptions() != p.DecodeOptions() {
			t.Errorf("%s: %+v", c.Name, low)
		}
		want, err := whole.Prepare(sample(200, 70, 1))
		if err != nil {
			t.Fatal(err)
		}
		got, err := low.Prepare(sample(200, 70, 1))
		if err != nil || got.Plan != want.Plan || len(got.Views) != 1 || digest(got.Views[0].Pixels) != digest(want.Views[0].Pixels) {
			t.Errorf("%s: %+v, %v, want %+v", c.Name, got.Plan, err, want.Plan)
		}
		if all, err := p.Plan(200, 70); err != nil || all.Tokens != got.Tokens*(all.Grid.H*all.Grid.W+1) {
			t.Errorf("%s: %d tokens in %+v, in low detail %d; %v", c.Name, all.Tokens, all.Grid, got.Tokens, err)
		}
	}
	if divided == 0 {
		t.Error("no case has tiles")
	}
}

// TestArrange: rows of tiles stand line by line, without those of padding; each line ends with
// the row for a new one. The case is worked out by hand.
func TestArrange(t *testing.T) {
	load := func(config string) (*Processor, error) {
		return Load(Files{
			Preprocessor: []byte(`{"size": 4, "crop_size": 4, "image_grid_pinpoints": [[4, 8], [8, 4]]}`),
			Config:       []byte(`{"model_type": "llava_next", "vision_config": {"patch_size": 2}` + config + `}`),
		})
	}
	p, err := load(`, "image_grid_pinpoints": [[4, 8], [8, 4]]`)
	if err != nil {
		t.Fatal(err)
	}
	rows := func(n int) (rows [][]float32) {
		for i := range n {
			rows = append(rows, []float32{float32(i)})
		}
		return rows
	}
	newline := []float32{-1}
	for _, tt := range []struct {
		w, h int
		want []float32
	}{
		// Two tiles beside each other: the first has rows 4 to 7.
		{20, 10, []float32{0, 1, 2, 3, 4, 5, 8, 9, -1, 6, 7, 10, 11, -1}},
		// One above the other.
		{10, 20, []float32{0, 1, 2, 3, 4, 5, -1, 6, 7, -1, 8, 9, -1, 10, 11, -1}},
		// So narrow that nothing is left of the lines but their ends.
		{1, 100, []float32{0, 1, 2, 3, -1, -1}},
		// So flat that no line is left.
		{100, 1, []float32{0, 1, 2, 3}},
	} {
		plan, err := p.Plan(tt.w, tt.h)
		if err != nil {
			t.Fatal(err)
		}
		got, err := p.Arrange(plan, rows(12), newline)
		if err != nil || !slices.EqualFunc(got, tt.want, func(row []float32, v float32) bool { return row[0] == v }) {
			t.Errorf("%d x %d: %v %v, want %v", tt.w, tt.h, got, err, tt.want)
		}
		if _, err := p.Arrange(plan, rows(15), newline); err == nil {
			t.Error("rows of a tower with a class token are arranged")
		}
		if _, err := p.Arrange(plan, rows(12), nil); err == nil {
			t.Error("lines end with nothing")
		}
	}
	if _, err := load(`, "image_grid_pinpoints": [[4, 8]]`); !errors.Is(err, ErrUnsupported) {
		t.Errorf("other tiles than those of the model: %v", err)
	}
	if _, err := load(""); err != nil {
		t.Error(err)
	}
	one, err := Load(Files{Preprocessor: []byte(`{"size": 4, "crop_size": 4}`), Config: []byte(`{"model_type": "llava", "vision_config": {"patch_size": 2}}`)})
	if err != nil {
		t.Fatal(err)
	}
	plan, _ := one.Plan(9, 9)
	if got, err := one.Arrange(plan, rows(4), nil); err != nil || len(got) != 4 {
		t.Errorf("LLaVA 1.5: %v %v", got, err)
	}
	if _, err := one.Arrange(plan, rows(5), nil); err == nil {
		t.Error("more rows than the plan has")
	}
}
