package worker

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/protocol"
)

// metric is the sum of a worker's series of a name that have all these labels, such as
// outcome="moved"; -1 if there is none.
func (r *running) metric(t *testing.T, name string, labels ...string) float64 {
	t.Helper()
	rec := httptest.NewRecorder()
	r.cfg.Metrics.Handler().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	sum, found := 0.0, false
	for _, m := range regexp.MustCompile(`(?m)^(\w+)\{(.*)\} (\S+)$`).FindAllSubmatch(rec.Body.Bytes(), -1) {
		has := func(label string) bool {
			return bytes.Contains(append(append([]byte{','}, m[2]...), ','), []byte(","+label+","))
		}
		if string(m[1]) != name || slices.ContainsFunc(labels, func(l string) bool { return !has(l) }) {
			continue
		}
		v, err := strconv.ParseFloat(string(m[3]), 64)
		if err != nil {
			t.Fatalf("metric %s: %v", m[0], err)
		}
		sum, found = sum+v, true
	}
	if !found {
		return -1
	}
	return sum
}

// counts waits until a worker's series has a value.
func (r *running) counts(t *testing.T, want float64, name string, labels ...string) {
	t.Helper()
	eventually(t, r.Name()+" counts "+strings.Join(append([]string{name}, labels...), " "), func() bool {
		return r.metric(t, name, labels...) == want
	})
}

// balanced waits until all hand-overs of a direction that a worker began have ended.
func (r *running) balanced(t *testing.T, direction string) {
	t.Helper()
	label := `direction="` + direction + `"`
	eventually(t, r.Name()+" counts the ends of its hand-overs", func() bool {
		return r.metric(t, "dynamo_component_handovers_total", label) == r.metric(t, "dynamo_component_handovers_started_total", label)
	})
}

// What a target refuses and what it takes is counted at both sides.
func TestHandoverIsCounted(t *testing.T) {
	t.Parallel()
	r := seeded(t)
	w := newWorld(t)
	slowDecode(2 * time.Millisecond)(&w.opts)
	a := w.start("worker-1", cluster.RoleDecode)
	b := w.start("worker-2", cluster.RoleDecode, func(c *Config) { c.Assignment.Engine.MaxModelLen = 600 })
	a.ready(t, 1)
	// The text of the second would end too early at the target.
	g := w.streams(t.Context(), a, []protocol.PreprocessedRequest{request("a", prompt(r, 60), 500), request("b", prompt(r, 60), 800)})
	a.drain(t)
	const ended, pause = "dynamo_component_handovers_total", "dynamo_component_handover_pause_seconds"
	a.counts(t, 1, ended, `direction="out"`, `outcome="moved"`, `reason=""`)
	a.counts(t, 1, pause+"_count", `outcome="moved"`)
	a.counts(t, 1, "dynamo_component_handover_duration_seconds_count")
	eventually(t, "the refusal is counted", func() bool {
		return a.metric(t, ended, `direction="out"`, `outcome="refused"`, `reason="invalid_argument"`) >= 1 &&
			b.metric(t, ended, `direction="in"`, `outcome="refused"`, `reason="mismatch"`) >= 1
	})
	if stood, whole := a.metric(t, pause+"_sum"), a.metric(t, "dynamo_component_handover_duration_seconds_sum"); stood <= 0 || stood > whole {
		t.Errorf("a sequence stood still for %v s of a hand-over of %v s", stood, whole)
	}
	b.counts(t, 1, ended, `direction="in"`, `outcome="moved"`, `reason=""`)
	sent, got := a.metric(t, "dynamo_component_handover_bytes_total", `direction="out"`), b.metric(t, "dynamo_component_handover_bytes_total", `direction="in"`)
	if blocks := sent / float64(a.plane().BlockBytes()); sent != got || blocks != float64(int(blocks)) || blocks < 60/blockSize {
		t.Errorf("%v bytes were sent and %v came in, in blocks of %d", sent, got, a.plane().BlockBytes())
	}
	if err := a.Resume(t.Context(), a.Assignment()); err != nil {
		t.Fatal(err)
	}
	a.waitState(t, cluster.StateReady)
	a.balanced(t, "out")
	b.balanced(t, "in")
	g.wg.Wait()
	check(t, g.got[0].result, g.reqs[0].TokenIDs, 500)
	check(t, g.got[1].result, g.reqs[1].TokenIDs, 800)
}
