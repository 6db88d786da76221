package frontend

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
)

// Prompts go to prefill workers from the moment that there is one until the last is gone.
// With enforce, a long prompt is refused while there is none, or all fail; what the rule
// keeps local is served.
func TestPrefillWorkersComeAndGo(t *testing.T) {
	w := newWorld(t)
	dec := w.fake("worker-9", say("abc"))
	s := routing()
	f := w.routed(s, 0, 1)
	served := func(what, why string) {
		t.Helper()
		before := len(dec.got())
		wholeAnswer(t, f.post("/v1/completions", longPrompt()))
		got := dec.got()
		if h := got[before].Disagg; h.Why != why || h.Enforce != s.get().Prefill.Enforce {
			t.Errorf("%s: %+v, want %q", what, h, why)
		}
	}
	refused := func(what, why string) {
		t.Helper()
		before := len(dec.got())
		resp := f.post("/v1/completions", longPrompt())
		e := failureOf(t, resp)
		if resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(e.Error.Message, "("+why+")") || len(dec.got()) != before {
			t.Errorf("%s: status %d, %+v", what, resp.StatusCode, e)
		}
	}
	known := func(n int) {
		t.Helper()
		patience.Until(t, "the prefill workers are known", func() bool {
			return len(f.registry.find(testModel).prefills) == n && len(f.prefills.Instances()) == n
		})
	}
	served("none yet", "no prefill worker")
	s.change(func(k *Settings) { k.Prefill.Enforce = true })
	refused("none yet", "no prefill worker")
	if a := wholeAnswer(t, f.post("/v1/completions", textBody(body{"prompt": "short"}))); a.Choices[0].Text != "abc" {
		t.Errorf("a short prompt: %+v", a)
	}
	pre := w.prefiller("worker-1", holds("worker-1", nil))
	known(1)
	served("one came", "")
	pre.vanish(t)
	known(0)
	refused("it is gone", "no prefill worker")
	broken := w.prefiller("worker-2", func(context.Context, protocol.PreprocessedRequest, func(protocol.EngineOutput) error) error {
		return errors.New("engine on fire")
	})
	known(1)
	refused("it fails", "prefill worker failed")
	s.change(func(k *Settings) { k.Prefill.MaxQueueDepth = 0 })
	refused("it is busy", "prefill workers busy")
	s.change(func(k *Settings) { k.Prefill.Enforce = false })
	served("no longer enforced", "prefill workers busy")
	broken.vanish(t)
	known(0)
	served("gone", "no prefill worker")
}

// What a decode worker refuses because no prefill worker has computed the prompt is not
// tried elsewhere.
func TestDecodeWorkerRefusesToPrefill(t *testing.T) {
	w := newWorld(t)
	w.fake("worker-1", refuse(requestplane.KindNotPrefilled), func(fk *fake) { fk.card.WorkerType = cluster.RoleDecode })
	two := w.fake("worker-2", refuse(requestplane.KindNotPrefilled))
	f := w.frontend().waitModel(2)
	resp := f.post("/v1/completions", textBody(nil))
	if e := failureOf(t, resp); resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(e.Error.Message, "refused by test") || len(two.got()) > 1 {
		t.Errorf("status %d, %+v", resp.StatusCode, e)
	}
}

// An answer that has begun goes on when its worker is lost, although no prefill worker is
// left for it.
func TestEnforceEndsNoAnswer(t *testing.T) {
	w := newWorld(t)
	var f *front
	pre := w.prefiller("worker-9", holds("worker-9", nil))
	w.pair(3, func(ctx context.Context, fk *fake) error {
		pre.vanish(t)
		patience.Until(t, "no prefill worker is known", func() bool { return len(f.prefills.Instances()) == 0 })
		return engineStops(ctx, fk)
	})
	s := routing()
	s.change(func(k *Settings) { k.Prefill.Enforce = true })
	f = w.routed(s, 1, 2)
	a := readStream(t, f.post("/v1/completions", textBody(body{"stream": true, "prompt": strings.Repeat("x", 40)})))
	if a.texts[0] != saga || a.failed != nil || len(pre.got()) != 1 {
		t.Errorf("got %+v, error %+v, the prefill worker was asked %d times", a, a.failed, len(pre.got()))
	}
}
