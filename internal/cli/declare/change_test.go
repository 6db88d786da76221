package declare

import (
	"slices"
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
)

// What a change does is told of every role; a change of the KV cache restarts no encode
// worker, one of the model does.
func TestEffects(t *testing.T) {
	from := cluster.Topology{Model: cluster.ModelSpec{Name: "m"}, Prefill: 1, Decode: 2, Encode: 2}
	for _, tc := range []struct {
		change func(*cluster.Topology)
		want   []string
	}{
		{func(*cluster.Topology) {}, []string{"no worker restarts"}},
		{func(t *cluster.Topology) { t.Encode, t.Decode = 3, 1 }, []string{"1 decode worker drains and leaves", "1 encode worker starts"}},
		{func(t *cluster.Topology) { t.Engine.KVBlocks = 5 }, []string{"1 prefill worker restarts", "2 decode workers restart, one at a time"}},
		{func(t *cluster.Topology) { t.EncodeSpec.Engine.Device = "cpu" }, []string{"2 encode workers restart, one at a time"}},
		{func(t *cluster.Topology) { t.Model.Name, t.Encode = "n", 0 }, []string{"1 prefill worker restarts", "2 decode workers restart, one at a time", "2 encode workers drain and leave"}},
	} {
		to := from
		tc.change(&to)
		if got := Effects(from, to); !slices.Equal(got, tc.want) {
			t.Errorf("%+v: %q, want %q", to, got, tc.want)
		}
	}
}
