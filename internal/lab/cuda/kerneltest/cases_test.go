package kerneltest_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/cuda/kernels"
	"github.com/dynctl/dynctl/internal/lab/cuda/kerneltest"
)

// Every kernel is launched by a small case, which tests run, and names tell cases apart.
func TestCasesAreComplete(t *testing.T) {
	seen, launched := map[string]bool{}, map[string]bool{}
	for _, c := range kerneltest.Cases() {
		if seen[c.Name] || strings.ContainsAny(c.Name, " \t\"'") || !strings.Contains(c.Name, "/") {
			t.Errorf("%q is the name of another case, or no good one", c.Name)
		}
		seen[c.Name] = true
		if c.Large {
			continue
		}
		names, err := c.Kernels()
		if err != nil || len(names) == 0 {
			t.Errorf("%s launches %q, %v", c.Name, names, err)
		}
		for _, n := range names {
			launched[n] = true
		}
	}
	for _, m := range kernels.Modules() {
		for _, k := range m.Kernels {
			if !launched[k] {
				t.Errorf("no case launches %s", k)
			}
		}
	}
}

// run runs a case by the functions in Go.
func run(t *testing.T, c kerneltest.Case) []kerneltest.Output {
	t.Helper()
	w, err := kerneltest.NewTwin()
	if err != nil {
		t.Fatal(err)
	}
	l := kerneltest.NewLab(w, c.Name)
	launch := c.Prepare(l)
	for _, err := range []error{l.Err(), launch(w.Queue()), w.Finish()} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return l.Outputs
}

// The operands of a case are the same whenever it runs, and results are not broken.
func TestCasesRepeat(t *testing.T) {
	for _, c := range kerneltest.Cases() {
		if c.Large {
			continue
		}
		first, second := run(t, c), run(t, c)
		for i, o := range first {
			if !bytes.Equal(o.Memory, second[i].Memory) {
				t.Errorf("%s: %s is something else the second time", c.Name, o.Name)
			}
		}
	}
}

// Large cases are for hardware, and "make emulate" computes them. Here they are only launched.
func TestLargeCases(t *testing.T) {
	for _, c := range kerneltest.Cases() {
		if !c.Large {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			if names, err := c.Kernels(); err != nil || len(names) == 0 {
				t.Errorf("launches %q, %v", names, err)
			}
		})
	}
}
