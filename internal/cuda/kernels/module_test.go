package kernels_test

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/cuda/kernels"
	"github.com/dynctl/dynctl/internal/lab/cuda/kerneltest"
)

// The PTX was made from these sources; who changes them must compile them.
func TestSourcesAreCompiled(t *testing.T) {
	if err := kernels.CheckSources(os.DirFS(".")); err != nil {
		t.Error(err)
	}
	if err := kernels.CheckSources(os.DirFS("testdata")); err == nil {
		t.Error("no sources are those of the PTX")
	}
}

// Every kernel has its resources, and its function in Go; none spills.
func TestKernelsAreComplete(t *testing.T) {
	twins, err := kerneltest.Kernels()
	if err != nil {
		t.Fatal(err)
	}
	table, err := kernels.AllLimits()
	if err != nil {
		t.Fatal(err)
	}
	var names, want []string
	for _, m := range kernels.Modules() {
		target := ".version 7.8\n.target sm_80\n"
		if kernels.Exact(m.Name) {
			target = ".version 8.0\n.target sm_90a\n"
		}
		if !bytes.Contains(m.PTX, []byte(target)) || len(m.Kernels) == 0 {
			t.Errorf("module %s has the kernels %q, and may not be for %q", m.Name, m.Kernels, target)
		}
		for _, n := range m.Kernels {
			names = append(names, n)
			if kernels.Exact(m.Name) {
				want = append(want, n+" sm_90a")
			} else {
				want = append(want, n+" sm_80", n+" sm_90")
			}
		}
	}
	var have, assembled []string
	for _, k := range twins {
		have = append(have, k.Name)
	}
	for _, l := range table {
		assembled = append(assembled, l.Kernel+" "+l.Arch)
		if l.SpillBytes != 0 || l.StackBytes != 0 || l.Registers < 1 || l.Registers*l.Threads > 64<<10 || l.SharedBytes > 48<<10 {
			t.Errorf("%+v", l)
		}
	}
	slices.Sort(names)
	if slices.Sort(have); !slices.Equal(have, names) {
		t.Errorf("functions in Go are %q\nkernels are %q", have, names)
	}
	slices.Sort(assembled)
	if slices.Sort(want); !slices.Equal(assembled, want) {
		t.Errorf("there are resources of %q\nkernels are %q", assembled, names)
	}
	if again := string(kernels.FormatLimits(table)); strings.Count(again, "\n") != len(table)+4 {
		t.Errorf("the table is\n%s", again)
	}
}
