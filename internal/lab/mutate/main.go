// Command mutate asks of each change of a line whether a test notices: it mutates lines
// that it draws by a seed, one at a time, and runs the tests that execute them.
//
//	go run ./internal/lab/mutate -packages internal/worker,internal/nixl -n 25 -seed 1
//
// The tree is never changed: mutants are compiled through an overlay. Results go to a
// file, one line of JSON each, as they come; a second call goes on where the first one
// ended, and -again survived has survivors tried once more, after tests were added.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// lab makes and tries mutants.
type lab struct {
	root, module string        // of the source
	dir          string        // for what is built and measured
	limit        time.Duration // for the tests of one mutant
}

// What became of a mutant.
const (
	killed   = "killed"   // a test failed, by an assertion or a panic, soon
	late     = "late"     // a test failed, but only after more than soonEnough
	timedOut = "timeout"  // nothing failed before the time was over
	survived = "survived" // all tests passed that execute the line
	unjudged = "unjudged" // those passed for which there was time, others did not run
	untested = "untested" // no test executes the line
	unbuilt  = "unbuilt"  // it does not compile, and does not count
)

// soonEnough limits the time of the test that kills a mutant.
const soonEnough = 10 * time.Second

// result is one line of the file of results.
type result struct {
	mutant
	Package string  `json:"package"`
	Outcome string  `json:"outcome"`
	Test    string  `json:"test,omitempty"`
	Seconds float64 `json:"seconds,omitempty"` // that the test took
	Unrun   int     `json:"unrun,omitempty"`   // tests of the line for which there was no time
}

// testers are packages whose tests are those of another one too.
var testers = map[string][]string{
	"internal/nixl":        {"internal/nixl/local", "internal/nixl/shm", "internal/nixl/tcp"},
	"internal/nixl/fenced": {"internal/nixl/shm", "internal/nixl/cma"},
	"internal/nixl/wire":   {"internal/nixl/tcp", "internal/nixl/shm"},

	"internal/worker/kv":      {"internal/worker"},
	"internal/worker/prefill": {"internal/worker"},
	"internal/worker/decode":  {"internal/worker"},
}

func main() {
	packages := flag.String("packages", "", "directories of the packages to mutate, separated by commas")
	n := flag.Int("n", 25, "mutants of each package; those that do not compile do not count")
	seed := flag.Uint64("seed", 1, "of the draw")
	file := flag.String("results", "mutants.jsonl", "file of the results; what is in it already is not tried again")
	again := flag.String("again", "", "outcomes in the file of results, separated by commas, to try again in place of a draw")
	only := flag.String("only", "", "try only mutants whose file:line: operator matches this regular expression")
	limit := flag.Duration("limit", 90*time.Second, "for the tests of one mutant")
	dir := flag.String("work", filepath.Join(os.TempDir(), "mutate"), "directory for what is built and measured")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := work(ctx, *packages, *n, *seed, *file, *again, *only, *limit, *dir); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

func work(ctx context.Context, packages string, n int, seed uint64, file, again, only string, limit time.Duration, dir string) error {
	l := &lab{dir: dir, limit: limit}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Path}} {{.Dir}}").Output()
	if err != nil {
		return fmt.Errorf("find the module: %w", err)
	}
	l.module, l.root, _ = strings.Cut(strings.TrimSpace(string(out)), " ")
	match, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	results, err := load(file)
	if err != nil {
		return err
	}
	for pkg := range strings.SplitSeq(packages, ",") {
		pkg = strings.Trim(strings.TrimPrefix(pkg, "./"), "/")
		if err := l.mutate(ctx, pkg, n, seed, strings.Split(again, ","), match, file, results); err != nil {
			return fmt.Errorf("%s: %w", pkg, err)
		}
	}
	report(results)
	return nil
}

// mutate tries mutants of one package, and writes down what became of them.
func (l *lab) mutate(ctx context.Context, pkg string, n int, seed uint64, again []string, only *regexp.Regexp, file string, results map[string]result) error {
	all, err := mutantsOf(l.root, pkg)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(m mutant) bool { return !only.MatchString(fmt.Sprintf("%s:%d: %s", m.File, m.Line, m.Op)) })
	h := fnv.New64()
	_, _ = h.Write([]byte(pkg))
	draw := rand.New(rand.NewPCG(seed, h.Sum64()))
	draw.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })

	var suites []*suite
	for _, d := range append([]string{pkg}, testers[pkg]...) {
		s, err := l.measure(ctx, pkg, d)
		if err != nil {
			return err
		}
		suites = append(suites, s)
	}
	tried := 0
	for _, m := range all {
		known, ok := results[m.ID]
		retry := ok && slices.Contains(again, known.Outcome)
		if again[0] == "" && tried >= n {
			break
		}
		if again[0] != "" && !retry {
			continue
		}
		if !ok || retry {
			r, err := l.try(ctx, m, suites)
			if err != nil {
				return err
			}
			r.Package = pkg
			l.say("%-9s %s:%d: %s: %s -> %s  [%s %.1fs]", r.Outcome, m.File, m.Line, m.Op, brief(m.Was), brief(m.Now), r.Test, r.Seconds)
			if err := keep(file, r); err != nil {
				return err
			}
			results[m.ID], known = r, r
		}
		if known.Outcome != unbuilt {
			tried++
		}
	}
	return nil
}

// try compiles a mutant and runs the tests that execute its line, quick ones first.
func (l *lab) try(ctx context.Context, m mutant, suites []*suite) (result, error) {
	r := result{mutant: m, Outcome: untested}
	source, err := os.ReadFile(filepath.Join(l.root, m.File))
	if err != nil {
		return r, err
	}
	mutated := filepath.Join(l.dir, "mutant.go")
	overlay := filepath.Join(l.dir, "overlay.json")
	if err := os.WriteFile(mutated, m.apply(source), 0o644); err != nil {
		return r, err
	}
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(l.root, m.File): mutated}})
	if err != nil {
		return r, err
	}
	if err := os.WriteFile(overlay, replace, 0o644); err != nil {
		return r, err
	}
	end := time.Now().Add(l.limit)
	for _, s := range suites {
		var names []string
		for name, t := range s.Tests {
			if !t.Failed && (m.global || t.covers(m.File, m.covers)) {
				names = append(names, name)
			}
		}
		if len(names) == 0 {
			continue
		}
		slices.SortFunc(names, func(a, b string) int { return int(1000 * (s.Tests[a].Seconds - s.Tests[b].Seconds)) })
		bin := filepath.Join(l.dir, "mutant.test")
		if out, err := l.gotool(ctx, "test", "-c", "-overlay", overlay, "-o", bin, "./"+s.Dir); err != nil {
			r.Outcome, r.Test = unbuilt, tail(out, 120)
			return r, ctx.Err()
		}
		if r.Outcome == untested {
			r.Outcome = survived
		}
		for _, some := range s.batches(names) {
			soon, err := l.tryTests(ctx, bin, s, some, end, &r)
			if soon || err != nil {
				return r, err
			}
		}
	}
	if r.Outcome == survived && r.Unrun > 0 {
		r.Outcome = unjudged
	}
	if r.Outcome == untested {
		if out, err := l.gotool(ctx, "build", "-overlay", overlay, "./"+filepath.Dir(m.File)); err != nil {
			r.Outcome, r.Test = unbuilt, tail(out, 120)
			return r, ctx.Err()
		}
	}
	return r, nil
}

// tryTests runs tests of a mutant until one fails soon. Those that fail late or not at
// all within their time are remembered, and the rest has its turn nevertheless: what
// counts is whether any test tells soon, not which comes first in its file.
func (l *lab) tryTests(ctx context.Context, bin string, s *suite, names []string, end time.Time, r *result) (soon bool, err error) {
	for len(names) > 0 {
		left := time.Until(end)
		if left < time.Second {
			r.Unrun += len(names)
			return false, nil
		}
		limit := 2 * soonEnough
		for _, name := range names {
			limit += time.Duration(3 * s.Tests[name].Seconds * float64(time.Second))
		}
		out, err := l.runTests(ctx, bin, s.Dir, names, min(left, limit), "-test.v")
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		if err == nil {
			return false, nil
		}
		outcome, test, seconds := judge(out)
		if outcome == killed || r.Outcome != late {
			r.Outcome, r.Test, r.Seconds = outcome, test, seconds
		}
		if outcome == killed {
			return true, nil
		}
		started := map[string]bool{}
		for _, m := range begun.FindAllSubmatch(out, -1) {
			started[string(m[1])] = true
		}
		rest := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return started[name] })
		if len(rest) == len(names) {
			return false, nil // it did not even begin
		}
		names = rest
	}
	return false, nil
}

// batches cuts tests, quick ones first, into runs, so that a slow one does not come first
// only because it stands first in its file.
func (s *suite) batches(names []string) (all [][]string) {
	for _, most := range []float64{1, 10, 1e9} {
		var some []string
		for len(names) > 0 && s.Tests[names[0]].Seconds <= most {
			some, names = append(some, names[0]), names[1:]
		}
		if len(some) > 0 {
			all = append(all, some)
		}
	}
	return all
}

var begun = regexp.MustCompile(`(?m)^=== RUN\s+(\w+)$`)

var failed = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+) \(([0-9.]+)s\)`)

var running = regexp.MustCompile(`(?m)^running tests:\n\t(\S+)`)

// judge reads the output of tests that failed.
func judge(out []byte) (outcome, test string, seconds float64) {
	for _, m := range failed.FindAllSubmatch(out, -1) { // the innermost comes last
		test = string(m[1])
		seconds, _ = strconv.ParseFloat(string(m[2]), 64)
	}
	switch {
	case bytes.Contains(out, []byte("panic: test timed out")):
		if m := running.FindSubmatch(out); m != nil {
			test = string(m[1])
		}
		return timedOut, test, seconds
	case test == "" && !bytes.Contains(out, []byte("panic: ")) && !bytes.Contains(out, []byte("fatal error: ")):
		return timedOut, "", 0 // it did not even end at its limit
	case seconds > soonEnough.Seconds():
		return late, test, seconds
	}
	return killed, test, seconds
}

// runTests runs tests of a binary, and ends it when it does not keep to its limit.
func (l *lab) runTests(ctx context.Context, bin, dir string, tests []string, limit time.Duration, more ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, limit+5*time.Second)
	defer cancel()
	args := append([]string{"-test.short", "-test.failfast", "-test.timeout=" + limit.String(), "-test.run=^(" + strings.Join(tests, "|") + ")$"}, more...)
	cmd := exec.CommandContext(ctx, bin, args...)
	cmd.Dir = filepath.Join(l.root, dir)
	cmd.WaitDelay = time.Second
	return cmd.CombinedOutput()
}

func (l *lab) gotool(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = l.root
	return cmd.CombinedOutput()
}

// sum identifies the lines of a package, without its tests.
func (l *lab) sum(dir string) (string, error) {
	files, err := filepath.Glob(filepath.Join(l.root, dir, "*.go"))
	if err != nil {
		return "", err
	}
	h := fnv.New64()
	for _, f := range files {
		if strings.HasSuffix(f, "_test.go") {
			continue
		}
		data, err := os.ReadFile(f)
		if err != nil {
			return "", err
		}
		_, _ = h.Write(data)
	}
	return fmt.Sprintf("%016x", h.Sum64()), nil
}

func (l *lab) say(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

// load reads the file of results; of several lines about a mutant the last one counts.
func load(file string) (map[string]result, error) {
	results := map[string]result{}
	data, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	for line := range strings.Lines(string(data)) {
		var r result
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		results[r.ID] = r
	}
	return results, nil
}

func keep(file string, r result) error {
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(append(line, '\n'))
	return errors.Join(err, f.Close())
}

// report prints the rate of each package, and the mutants that nothing noticed soon.
func report(results map[string]result) {
	count := map[string]map[string]int{}
	var weak []result
	for _, r := range results {
		if r.Outcome == unbuilt {
			continue
		}
		if count[r.Package] == nil {
			count[r.Package] = map[string]int{}
		}
		count[r.Package][r.Outcome]++
		count[r.Package]["all"]++
		if r.Outcome != killed {
			weak = append(weak, r)
		}
	}
	w := os.Stdout
	fmt.Fprintf(w, "| package | mutants | killed within %s | later | by time limit | survived | unjudged | in no test |\n|---|---|---|---|---|---|---|---|\n", soonEnough)
	pkgs := make([]string, 0, len(count))
	for p := range count {
		pkgs = append(pkgs, p)
	}
	slices.Sort(pkgs)
	for _, p := range pkgs {
		c := count[p]
		fmt.Fprintf(w, "| %s | %d | %d (%d %%) | %d | %d | %d | %d | %d |\n", p, c["all"], c[killed], 100*c[killed]/c["all"], c[late], c[timedOut], c[survived], c[unjudged], c[untested])
	}
	slices.SortFunc(weak, func(a, b result) int {
		if a.File != b.File {
			return strings.Compare(a.File, b.File)
		}
		return a.Line - b.Line
	})
	fmt.Fprintln(w)
	for _, r := range weak {
		unrun := ""
		if r.Unrun > 0 {
			unrun = fmt.Sprintf(", no time for %d tests", r.Unrun)
		}
		fmt.Fprintf(w, "- %s%s: `%s:%d` %s: `%s` becomes `%s` %s\n", r.Outcome, unrun, r.File, r.Line, r.Op, brief(r.Was), brief(r.Now), r.Test)
	}
}

func flat(dir string) string { return strings.ReplaceAll(dir, "/", "_") }

func brief(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > 100 {
		s = s[:97] + "..."
	}
	return s
}

func tail(b []byte, n int) string {
	if len(b) > n {
		b = b[len(b)-n:]
	}
	return strings.TrimSpace(string(b))
}
