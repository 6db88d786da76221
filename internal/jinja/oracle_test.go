package jinja_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/jinja"
)

var (
	oracleSeed  = flag.Uint64("oracle.seed", 1, "seed of TestOracle; 0 takes a new one, as make fuzz does")
	oracleCases = flag.Int("oracle.cases", 500, "random templates of TestOracle")
)

// damagePercent of the random templates are damaged.
const damagePercent = 15

type oracleCase struct {
	Source string          `json:"source"`
	Data   json.RawMessage `json:"data"`
	Now    string          `json:"now"`
	name   string
	broken bool // damaged at random
}

type oracleAnswer struct {
	Text    *string `json:"text,omitempty"`
	Kind    string  `json:"kind,omitempty"`
	Message string  `json:"message,omitempty"`
}

// askOracle renders the cases with Python's jinja2.
func askOracle(t *testing.T, cases []oracleCase) []oracleAnswer {
	t.Helper()
	python := ""
	for _, p := range []string{"/usr/bin/python3", "python3"} {
		if exec.Command(p, "-c", "import jinja2").Run() == nil {
			python = p
			break
		}
	}
	if python == "" {
		t.Skip("no python3 with jinja2 (Debian: apt-get install python3-jinja2)")
	}
	var in bytes.Buffer
	enc := json.NewEncoder(&in)
	enc.SetEscapeHTML(false)
	for _, c := range cases {
		if err := enc.Encode(c); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), python, "testdata/oracle.py")
	cmd.Stdin = &in
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("oracle: %v", err)
	}
	var answers []oracleAnswer
	sc := bufio.NewScanner(bytes.NewReader(out))
	sc.Buffer(nil, 64<<20)
	for sc.Scan() {
		var a oracleAnswer
		if err := json.Unmarshal(sc.Bytes(), &a); err != nil {
			t.Fatal(err)
		}
		answers = append(answers, a)
	}
	if len(answers) != len(cases) {
		t.Fatalf("oracle gave %d answers for %d cases", len(answers), len(cases))
	}
	return answers
}

// identity matches what depends on addresses in Python's output.
var identity = regexp.MustCompile(`(?i)( at 0x[0-9a-f]+|<(built-in|function|class|bound) )`)

func TestOracle(t *testing.T) {
	seed := *oracleSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d (repeat with -oracle.seed)", seed)
	g := &generator{rng: rand.New(rand.NewPCG(seed, 1))}

	const now = "2026-01-31T13:00:09"
	at, _ := time.ParseInLocation("2006-01-02T15:04:05", now, time.Local)
	var cases []oracleCase
	files, err := filepath.Glob("testdata/*/*.jinja")
	if err != nil || len(files) == 0 {
		t.Fatalf("templates: %v, %v", files, err)
	}
	more, _ := filepath.Glob("testdata/chat-template/templates/*.jinja")
	for _, f := range append(files, more...) {
		source, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for range 5 + *oracleCases/100 {
			cases = append(cases, oracleCase{Source: string(source), Data: g.conversation(), Now: now, name: filepath.Base(f)})
		}
	}
	for range *oracleCases {
		source := g.template()
		broken := g.chance(damagePercent)
		if broken {
			source = g.damage(source)
		}
		cases = append(cases, oracleCase{Source: source, Data: g.data(), Now: now, name: "snippet", broken: broken})
	}

	failed, skipped, errors, kinds := 0, 0, 0, 0
	for i, want := range askOracle(t, cases) {
		c := cases[i]
		if want.Text != nil && identity.MatchString(*want.Text) {
			skipped++
			continue
		}
		data, err := jinja.FromJSON(c.Data)
		if err != nil {
			t.Fatal(err)
		}
		got, err := render(t, c.name, c.Source, data.(*jinja.Dict), at)
		kind, _ := errorKind(err)
		ok := false
		switch {
		case want.Text == nil:
			errors++
			ok = err != nil
			if ok && !sameKind(kind, want.Kind) {
				kinds++
				t.Logf("kind differs: %q: %v; want %s: %s", c.Source, err, want.Kind, want.Message)
			}
		default:
			// Python takes forms that nobody writes, such as l[:, 1].
			ok = err == nil && got == *want.Text || c.broken && kind == "TemplateSyntaxError"
		}
		if ok {
			continue
		}
		if failed++; failed <= 15 {
			t.Errorf("case %d, %s\nsource %q\ndata %s\ngot  %q, error %v\nwant %s", i, c.name, c.Source, c.Data, got, err, describe(want))
		}
	}
	t.Logf("%d cases: %d wrong, %d must fail (%d with another kind of error), %d skipped because they print addresses",
		len(cases), failed, errors, kinds, skipped)
}

// sameKind compares error kinds; Python tells apart a few that a caller treats
// alike.
func sameKind(got, want string) bool {
	switch want {
	case got:
		return true
	case "TemplateAssertionError", "SyntaxError":
		return got == "TemplateSyntaxError"
	case "FilterArgumentError", "AttributeError", "AssertionError", "MemoryError", "RecursionError", "LookupError", "RuntimeError":
		return true
	}
	return false
}

func describe(a oracleAnswer) string {
	if a.Text != nil {
		return fmt.Sprintf("%q", *a.Text)
	}
	return a.Kind + ": " + strings.TrimSpace(a.Message)
}
