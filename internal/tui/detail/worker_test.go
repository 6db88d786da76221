package detail

import (
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/tui/cells"
)

func TestModelText(t *testing.T) {
	for want, w := range map[string]cluster.Worker{
		"qwen in q8_0": {WorkerStatus: cluster.WorkerStatus{Model: "qwen", Weights: "q8_0"}},
		"qwen":         {WorkerStatus: cluster.WorkerStatus{Model: "qwen"}},
		cells.Unknown:  {},
	} {
		if got := modelText(&w); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
