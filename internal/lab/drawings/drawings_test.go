package drawings

import (
	"bufio"
	"bytes"
	"encoding/json"
	"image/png"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/recall/drawn"
)

// folder has what says how pictures are prepared.
const folder = "../../model/builtin-vision"

func plan(change func(p *Plan)) *Plan {
	p := &Plan{Model: folder, Seed: 3, Count: 8, Kinds: map[string]int{"code": 1, "shapes": 1, "digits": 1}}
	if change != nil {
		change(p)
	}
	return p
}

// What is written can be read again: a line and a view for each picture.
func TestRun(t *testing.T) {
	var out bytes.Buffer
	if err := plan(nil).Run(&out); err != nil {
		t.Fatal(err)
	}
	again := bytes.Clone(out.Bytes())
	in := bufio.NewReader(&out)
	line := func(v any) {
		t.Helper()
		b, err := in.ReadBytes('\n')
		if err == nil {
			err = json.Unmarshal(b, v)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var head struct {
		Side  int
		Facts []drawn.Fact
	}
	line(&head)
	if head.Side != 96 || len(head.Facts) != len(drawn.FactSizes()) {
		t.Fatalf("%+v", head)
	}
	for i := range 8 {
		var p record
		line(&p)
		view := make([]byte, 3*head.Side*head.Side)
		if _, err := io.ReadFull(in, view); err != nil {
			t.Fatal(err)
		}
		if len(p.Facts) != len(head.Facts) || len(p.Objects) == 0 || (len(p.Asks) == 0) != (p.Kind == drawn.Digits) || bytes.Count(view, view[:1]) == len(view) {
			t.Errorf("%d: %+v", i, p)
		}
		for _, o := range p.Objects {
			if len(o) != 7 || o[3] < 0 || o[5] > 1 || o[3] >= o[5] || o[4] >= o[6] {
				t.Errorf("%d: object %v", i, o)
			}
		}
	}
	if n := in.Buffered(); n > 0 {
		t.Errorf("%d bytes are left", n)
	}
	out.Reset()
	if err := plan(nil).Run(&out); err != nil || !bytes.Equal(out.Bytes(), again) {
		t.Errorf("other pictures from the same seed, %v", err)
	}
}

// Ways of asking that are held out are not in the training.
func TestHeld(t *testing.T) {
	asked := func(held bool) map[string]bool {
		var out bytes.Buffer
		if err := plan(func(p *Plan) { p.Held, p.Count, p.Kinds = held, 60, map[string]int{"code": 1} }).Run(&out); err != nil {
			t.Fatal(err)
		}
		texts := map[string]bool{}
		for _, q := range regexp.MustCompile(`\["code","([^"]*)"`).FindAllSubmatch(out.Bytes(), -1) {
			texts[string(q[1])] = true
		}
		return texts
	}
	ask, _ := drawn.Draw(rand.New(rand.NewPCG(1, 1)), drawn.Code).Ask("code")
	for held, ways := range map[bool][]string{false: ask.Ways, true: ask.Held} {
		got := asked(held)
		if len(got) < 5 {
			t.Errorf("held %v: %d ways in 60 pictures", held, len(got))
		}
		for q := range got {
			if !slices.Contains(ways, q) {
				t.Errorf("held %v: %q", held, q)
			}
		}
	}
}

func TestFiles(t *testing.T) {
	dir := t.TempDir()
	if err := plan(func(p *Plan) { p.Dir, p.Count, p.Kinds = dir, 2, map[string]int{"panel": 1} }).Run(io.Discard); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"0000-panel.png", "0001-panel.png"} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := png.Decode(bytes.NewReader(b)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestRefuses(t *testing.T) {
	for want, change := range map[string]func(p *Plan){
		"kinds: door=1":            func(p *Plan) { p.Kinds = map[string]int{"door": 1} },
		"kinds: code=-1":           func(p *Plan) { p.Kinds = map[string]int{"code": -1} },
		"no kind is asked for":     func(p *Plan) { p.Kinds = nil },
		"preprocessor_config.json": func(p *Plan) { p.Model = t.TempDir() },
	} {
		if err := plan(change).Run(io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
