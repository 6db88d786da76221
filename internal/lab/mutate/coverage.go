package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// suite is the tests of one package, and which lines of the mutated package each covers.
type suite struct {
	Dir   string          `json:"dir"` // from the root of the module
	Tests map[string]*run `json:"tests"`
}

// run is a test that ran alone, without any mutation.
type run struct {
	Sum     string              `json:"sum,omitempty"` // of the file that the test is in
	Seconds float64             `json:"seconds"`
	Failed  bool                `json:"failed,omitempty"`
	Lines   map[string][][2]int `json:"lines,omitempty"` // by file: from, to
}

func (r *run) covers(file string, line int) bool {
	return slices.ContainsFunc(r.Lines[file], func(l [2]int) bool { return l[0] <= line && line <= l[1] })
}

// measure runs every test of a package alone, with the coverage of the mutated package.
// What an earlier call found is kept in a file, as long as the mutated package has the
// same lines; only tests that are not in it run, and those whose file has changed.
func (l *lab) measure(ctx context.Context, mutated, dir string) (*suite, error) {
	s := &suite{Dir: dir, Tests: map[string]*run{}}
	sum, err := l.sum(mutated)
	if err != nil {
		return nil, err
	}
	kept := filepath.Join(l.dir, fmt.Sprintf("coverage-%s-of-%s-%s.json", flat(dir), flat(mutated), sum))
	data, err := os.ReadFile(kept)
	switch {
	case err == nil:
		err = json.Unmarshal(data, s)
	case errors.Is(err, fs.ErrNotExist):
		err = nil
	}
	if err != nil {
		return nil, err
	}
	bin := filepath.Join(l.dir, flat(dir)+".cover.test")
	if out, err := l.gotool(ctx, "test", "-c", "-cover", "-coverpkg=./"+mutated, "-o", bin, "./"+dir); err != nil {
		return nil, fmt.Errorf("build the tests of %s: %w\n%s", dir, err, out)
	}
	defer func() { _ = os.Remove(bin) }()
	list := exec.CommandContext(ctx, bin, "-test.list", "^(Test|Fuzz|Example)")
	list.Dir = filepath.Join(l.root, dir)
	names, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("list the tests of %s: %w", dir, err)
	}
	now := strings.Fields(string(names))
	for name := range s.Tests {
		if !slices.Contains(now, name) {
			delete(s.Tests, name)
		}
	}
	sums, err := l.testSums(dir)
	if err != nil {
		return nil, err
	}
	for _, name := range now {
		if t := s.Tests[name]; t != nil && t.Sum == sums[name] {
			continue
		}
		if s.Tests[name], err = l.measureTest(ctx, bin, dir, name); err != nil {
			return nil, err
		}
		s.Tests[name].Sum = sums[name]
		if data, err = json.Marshal(s); err == nil {
			err = os.WriteFile(kept, data, 0o644)
		}
		if err != nil {
			return nil, err
		}
	}
	return s, nil
}

var declared = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Example)\w*)\(`)

// testSums returns, by the name of a test, what identifies the file that it is in.
func (l *lab) testSums(dir string) (map[string]string, error) {
	files, err := filepath.Glob(filepath.Join(l.root, dir, "*_test.go"))
	if err != nil {
		return nil, err
	}
	sums := map[string]string{}
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		h := fnv.New64()
		_, _ = h.Write(data)
		for _, m := range declared.FindAllSubmatch(data, -1) {
			sums[string(m[1])] = fmt.Sprintf("%016x", h.Sum64())
		}
	}
	return sums, nil
}

func (l *lab) measureTest(ctx context.Context, bin, dir, name string) (*run, error) {
	profile := bin + ".profile"
	begin := time.Now()
	out, err := l.runTests(ctx, bin, dir, []string{name}, l.limit*2, "-test.coverprofile="+profile)
	r := &run{Seconds: time.Since(begin).Seconds(), Failed: err != nil, Lines: map[string][][2]int{}}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		l.say("%s: %s fails without any mutation and is left out: %v\n%s", dir, name, err, tail(out, 400))
		return r, nil
	}
	f, err := os.Open(profile)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for sc := bufio.NewScanner(f); sc.Scan(); {
		file, from, to, ok := covered(sc.Text())
		if ok {
			file = strings.TrimPrefix(file, l.module+"/")
			r.Lines[file] = append(r.Lines[file], [2]int{from, to})
		}
	}
	return r, nil
}

// covered reads a line of a profile: file:line.column,line.column statements count.
func covered(line string) (file string, from, to int, ok bool) {
	file, rest, found := strings.Cut(line, ".go:")
	if !found || strings.HasSuffix(rest, " 0") {
		return "", 0, 0, false
	}
	var c1, c2, n, count int
	if _, err := fmt.Sscanf(rest, "%d.%d,%d.%d %d %d", &from, &c1, &to, &c2, &n, &count); err != nil {
		return "", 0, 0, false
	}
	return file + ".go", from, to, true
}
