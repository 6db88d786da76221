package gpucheck

import (
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/lab/cuda/kerneltest"
)

// A run that is cut off has compared each kernel in its smallest shapes before any in others.
func TestCompareOrder(t *testing.T) {
	kernels, large := map[string]bool{}, map[string]bool{}
	for _, c := range kerneltest.Cases() {
		kernel, _, _ := strings.Cut(c.Name, "/")
		large[c.Name] = c.Large
		if !c.Large {
			kernels[kernel] = true
		}
	}
	cases := compareCases()
	seen, turns := map[string]bool{}, map[string]int{}
	for i, c := range cases {
		kernel, _, _ := strings.Cut(c.Name, "/")
		if i < len(kernels) && turns[kernel] > 0 {
			t.Errorf("%s comes before other kernels' first case", c.Name)
		}
		if i > 0 && large[cases[i-1].Name] && !large[c.Name] {
			t.Errorf("%s comes after a large case", c.Name)
		}
		turns[kernel]++
		seen[c.Name] = true
	}
	if len(seen) != len(large) || len(cases) != len(large) {
		t.Errorf("%d cases, of which %d differ; there are %d", len(cases), len(seen), len(large))
	}
	if first := cases[0].Name; first != kerneltest.Cases()[0].Name {
		t.Errorf("the first is %s", first)
	}
}
