package kernels_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/cuda/kernels"
)

// In every kernel the wait comes before all else, and nothing else changes but the target.
func TestOverlapping(t *testing.T) {
	const added = "\n\tgriddepcontrol.wait;\n\tgriddepcontrol.launch_dependents;"
	begins := regexp.MustCompile(`(?m)^\.visible \.entry [^{]*\{\n\tgriddepcontrol\.wait;\n\tgriddepcontrol\.launch_dependents;\n`)
	for _, m := range kernels.Modules() {
		got := string(kernels.Overlapping(m.PTX))
		if n := len(begins.FindAllString(got, -1)); n != len(m.Kernels) || strings.Count(got, added) != n {
			t.Errorf("%s: %d of %d kernels begin with the wait", m.Name, n, len(m.Kernels))
		}
		target := ".target sm_90\n"
		if kernels.Exact(m.Name) {
			target = ".target sm_90a\n"
		}
		if !strings.Contains(got, target) {
			t.Errorf("%s is not for %s", m.Name, target)
		}
		if back := strings.Replace(strings.ReplaceAll(got, added, ""), ".target sm_90\n", ".target sm_80\n", 1); back != string(m.PTX) {
			t.Errorf("%s has other changes", m.Name)
		}
	}
}
