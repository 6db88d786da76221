package human

import (
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cli/clitest"
	"github.com/dynctl/dynctl/internal/cluster"
)

func TestValuesForPeople(t *testing.T) {
	for got, want := range map[string]string{
		Age(45 * time.Second): "45s", Age(14 * time.Minute): "14m", Age(131 * time.Minute): "2h11m", Age(76 * time.Hour): "3d04h", Age(-1): "0s",
		Duration(200 * time.Millisecond): "0.2s", Duration(72 * time.Second): "1:12", Duration(2*time.Hour + 5*time.Minute): "2:05:00",
		Clock(281 * time.Second): "4:41", Commas(1204): "1,204", Commas(-1234567): "-1,234,567", Commas(12): "12", Plural(1, "worker"): "1 worker",
		Shape(cluster.Topology{Prefill: 2, Decode: 4}): "2 prefill + 4 decode workers", Shape(cluster.Topology{Decode: 1}): "1 decode worker",
		Shape(cluster.Topology{Prefill: 1, Decode: 1}): "1 prefill + 1 decode worker", Shape(cluster.Topology{}): "0 decode workers",
		Shape(cluster.Topology{Decode: 2, Encode: 1}): "2 decode + 1 encode worker", Shape(cluster.Topology{Prefill: 1, Decode: 1, Encode: 2}): "1 prefill + 1 decode + 2 encode workers",
		Names(nil): "none", Names([]string{"a", "b"}): "a, b", Names(strings.Split("a b c d e f g h i", " ")): "a … i (9)",
		Device(clitest.Nodes(), "n2", "gpu:0"): "gpu0 H200", Device(clitest.Nodes(), "n1", "cpu:0"): "cpu0 8c", Device(nil, "x", "gpu:3"): "gpu3", Device(nil, "", ""): "",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestShellQuote(t *testing.T) {
	for in, want := range map[string]string{"plain-1.0": "plain-1.0", "a b": "'a b'", "it's": `'it'\''s'`, "": "''", `{"a":1}`: `'{"a":1}'`} {
		if got := ShellQuote(in); got != want {
			t.Errorf("shellQuote(%q) = %s, want %s", in, got, want)
		}
	}
}
