package tokenizer

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

var (
	oracleSeed = flag.Uint64("oracle.seed", 1, "seed of TestOracle; 0 picks one, as make fuzz does")
	oracleSize = flag.Int("oracle.n", 200, "random texts for each tokenizer in TestOracle")
	// To record: go test -run Oracle -oracle.record -oracle.n=16 -oracle.seed=1
	oracleRecord = flag.Bool("oracle.record", false, "write what the reference answers to testdata/variants.vectors.json")
)

// TestOracle compares with the reference implementation's Node binding, for
// random texts and ids and every variant. It needs node and a node_modules
// folder that holds the npm package tokenizers (0.23.2, install with
// --ignore-scripts), named by DYNCTL_TOKENIZERS_NODE_MODULES.
func TestOracle(t *testing.T) {
	node, seed := oracleSetup(t)
	var recording sync.Map // name → oracleCase
	if *oracleRecord {
		t.Cleanup(func() { writeRecording(t, &recording) })
	}
	all := slices.Concat(variants, patternVariants())
	cases, files, toks := make([]oracleCase, len(all)), make([][]byte, len(all)), make([]*Tokenizer, len(all))
	for i, v := range all {
		var err error
		files[i] = v.file(t)
		if toks[i], err = Load(files[i]); err != nil {
			t.Fatal(v.name, err)
		}
		cases[i] = v.oracleCase(seed, toks[i])
	}
	ask(t, node, files, cases)
	for i, v := range all {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			cases[i].check(t, toks[i])
			recording.Store(v.name, cases[i])
		})
	}
}

// oracleCase returns random questions about a tokenizer, without answers.
func (v variant) oracleCase(seed uint64, tok *Tokenizer) oracleCase {
	c := oracleCase{Pairs: [][2]string{}, IDs: [][]uint32{}}
	m := newTextMaker(seed, tok)
	texts, pairs, lists := *oracleSize, *oracleSize/10, *oracleSize/4
	if slices.Contains(regexPatterns, v.name) { // only the splitting is new
		texts, pairs, lists = *oracleSize/5, 0, 0
	}
	for range texts {
		c.Texts = append(c.Texts, m.text())
	}
	for range pairs {
		c.Pairs = append(c.Pairs, [2]string{m.text(), m.text()})
	}
	for range lists {
		ids := m.ids(tok)
		if v.name == "strip-both" { // the reference aborts on a token it has stripped to nothing
			letter, _ := tok.TokenID("a")
			ids = slices.Concat(ids, []uint32{letter}, m.ids(tok))
		}
		c.IDs = append(c.IDs, ids)
	}
	return c
}

// TestVariants checks the answers of the reference that TestOracle recorded.
func TestVariants(t *testing.T) {
	var cases map[string]oracleCase
	if err := json.Unmarshal(readFile(t, "variants.vectors.json"), &cases); err != nil {
		t.Fatal(err)
	}
	for _, v := range slices.Concat(variants, patternVariants()) {
		t.Run(v.name, func(t *testing.T) {
			c, ok := cases[v.name]
			if !ok {
				t.Fatal("no recording")
			}
			tok, err := Load(v.file(t))
			if err != nil {
				t.Fatal(err)
			}
			c.check(t, tok)
		})
	}
}

// patternVariants split by each of regexPatterns. Their model marks the last
// symbol of each piece, so every cut shows in the ids.
func patternVariants() (out []variant) {
	for _, p := range regexPatterns {
		out = append(out, variant{p, "qwen2-like", both(withSuffix, pre(split(p, "Isolated"), byteLevel(false, false)))})
	}
	return out
}

// writeRecording writes one line for each tokenizer, sorted by name.
func writeRecording(t *testing.T, recording *sync.Map) {
	lines := []string{}
	recording.Range(func(name, c any) bool {
		lines = append(lines, string(marshal(t, name))+":"+string(marshal(t, c)))
		return true
	})
	slices.Sort(lines)
	b := []byte("{\n" + strings.Join(lines, ",\n") + "\n}\n")
	if err := os.WriteFile(filepath.Join("testdata", "variants.vectors.json"), b, 0o644); err != nil {
		t.Fatal(err)
	}
}

// oracleSetup finds node and picks the seed, or skips.
func oracleSetup(t *testing.T) (node string, seed uint64) {
	t.Helper()
	if os.Getenv("DYNCTL_TOKENIZERS_NODE_MODULES") == "" {
		t.Skip("DYNCTL_TOKENIZERS_NODE_MODULES is not set")
	}
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("node is not installed:", err)
	}
	if seed = *oracleSeed; seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-oracle.seed=%d -oracle.n=%d", seed, *oracleSize)
	return node, seed
}

// oracleCase holds the questions to the reference about one tokenizer, and its answers:
// for each text and pair the ids without and with special tokens, for each list of ids
// the text with and without special tokens.
type oracleCase struct {
	Texts []string
	Pairs [][2]string
	IDs   [][]uint32
	Want  struct {
		Texts, Pairs [][2][]uint32
		IDs          [][2]string
	}
}

// ask fills in Want of all cases. One process answers all: it takes longer to start than to
// answer one.
func ask(t *testing.T, node string, files [][]byte, cases []oracleCase) {
	t.Helper()
	jobs := make([]object, len(cases))
	for i, c := range cases {
		jobs[i] = object{"tokenizer": string(files[i]), "texts": c.Texts, "pairs": c.Pairs, "ids": c.IDs}
	}
	name := filepath.Join(t.TempDir(), "jobs.json")
	if err := os.WriteFile(name, marshal(t, jobs), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, node, filepath.Join("testdata", "oracle.js"), name)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal("reference:", err)
	}
	answers := json.NewDecoder(bytes.NewReader(out)) // one document for each case
	for i := range cases {
		if err := answers.Decode(&cases[i].Want); err != nil {
			t.Fatal(err)
		}
	}
}

// check compares tok with the answers, and its streams with its own decoding.
func (c *oracleCase) check(t *testing.T, tok *Tokenizer) {
	t.Helper()
	checks, misses := 0, 0
	check := func(ok bool, format string, args ...any) {
		t.Helper()
		if checks++; !ok {
			if misses++; misses <= 5 {
				t.Errorf(format, args...)
			}
		}
	}
	for i, text := range c.Texts {
		for k, special := range []bool{false, true} {
			got := tok.Encode(text, special)
			check(slices.Equal(got, c.Want.Texts[i][k]), "Encode(%+q, %v) = %v, want %v", text, special, got, c.Want.Texts[i][k])
		}
		ids := c.Want.Texts[i][1]
		got := streamed(tok, ids, true)
		check(got == streamText(tok, ids, true), "stream of %v = %+q, want %+q", ids, got, tok.Decode(ids, true))
	}
	for i, pair := range c.Pairs {
		for k, special := range []bool{false, true} {
			got := tok.EncodePair(pair[0], pair[1], special)
			check(slices.Equal(got, c.Want.Pairs[i][k]), "EncodePair(%+q, %v) = %v, want %v", pair, special, got, c.Want.Pairs[i][k])
		}
	}
	for i, ids := range c.IDs {
		for k, skip := range []bool{false, true} {
			got := tok.Decode(ids, skip)
			check(got == c.Want.IDs[i][k], "Decode(%v, %v) = %+q, want %+q", ids, skip, got, c.Want.IDs[i][k])
			got = streamed(tok, ids, skip)
			check(got == streamText(tok, ids, skip), "stream of %v = %+q, want %+q", ids, got, streamText(tok, ids, skip))
		}
	}
	if misses > 0 {
		t.Errorf("%d of %d checks failed", misses, checks)
	} else {
		t.Logf("%d checks passed", checks)
	}
}
