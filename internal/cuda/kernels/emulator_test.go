package kernels_test

import (
	"bytes"
	"os"
	"testing"

	"github.com/dynctl/dynctl/internal/lab/cuda/kerneltest"
	"github.com/dynctl/dynctl/internal/patience"
)

func newEmulated(t *testing.T, seed uint64) *twin {
	t.Helper()
	w, err := kerneltest.NewEmulated(seed)
	if err != nil {
		t.Fatal(err)
	}
	return &twin{t, w}
}

// TestEmulatedCases executes the PTX, looks for races and the like, and compares what it
// makes with what the functions in Go do. With DYNCTL_EMULATE it takes large cases, too,
// and several orders of warps.
func TestEmulatedCases(t *testing.T) {
	if patience.RaceDetector {
		t.Skip(noRaces)
	}
	all := os.Getenv("DYNCTL_EMULATE") != ""
	for _, c := range kerneltest.Cases() {
		if c.Large && !all {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			want := perform(newTwin(t), c)
			first := perform(newEmulated(t, 0), c)
			for i, g := range first {
				if err := g.Differs(want[i]); err != nil {
					t.Errorf("%s: %v", g.Name, err)
				}
			}
			for seed := uint64(1); all && seed < 4; seed++ {
				for i, g := range perform(newEmulated(t, seed), c) {
					if !bytes.Equal(g.Memory, first[i].Memory) {
						t.Errorf("%s depends on the order in which warps run", g.Name)
					}
				}
			}
		})
	}
}
