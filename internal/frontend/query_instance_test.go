package frontend

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/router"
)

// A query names the workers that the request would use and the tokens of its prompt, in
// one event or in the answer, and neither runs nor counts anything.
func TestQueryInstanceID(t *testing.T) {
	w := newWorld(t)
	pre := []*fake{w.prefiller("worker-1", holds("worker-1", nil)), w.prefiller("worker-2", holds("worker-2", nil))}
	dec := []*fake{w.fake("worker-3", prefilledBy("abc")), w.fake("worker-4", prefilledBy("abc"))}
	s := routing()
	s.change(func(k *Settings) { k.Policy = router.KV })
	f := w.routed(s, 2, 2)
	prompt := strings.Repeat("z", 5*testBlock+1)
	f.cached(pre[1], prompt, 4)
	f.cached(dec[1], prompt, 2)
	at := ranAt
	ask := func(what string, stream bool, ext body, prompt string, want ranOn) {
		t.Helper()
		var e *extension
		b := textBody(body{"prompt": prompt, "nvext": ext, "stream": stream})
		if stream {
			got := readStream(t, f.post("/v1/completions", b))
			if len(got.events) != 1 || !got.done {
				t.Fatalf("%s: %+v", what, got)
			}
			e = extensionOf(t, got.events[0])
		} else {
			text := readAll(t, f.post("/v1/completions", b))
			if e = extensionOf(t, text); !strings.Contains(text, `"choices":[]`) {
				t.Errorf("%s: %s", what, text)
			}
		}
		if e == nil || e.Workers == nil || *e.Workers != want || !slices.Equal(e.TokenIDs, tokens(prompt)) || e.Timing != nil {
			t.Errorf("%s: %+v, want %+v", what, e, want)
		}
		if d := e.Route; d == nil || d.Chosen != want.Decode || d.Prefill != "" || len(d.Candidates) != 2 || d.PromptToks != len(prompt) || len(e.Images) != 0 {
			t.Errorf("%s: route %+v", what, d)
		}
	}
	for _, stream := range []bool{false, true} {
		for range 3 { // nothing is counted
			ask("remote", stream, body{"annotations": []string{"query_instance_id:"}}, prompt, at(pre[1], dec[1]))
		}
		ask("local", stream, body{"query_instance_id": true, "decode_worker_id": dec[0].drt.ID()}, "short", at(dec[0], dec[0]))
		ask("named", stream, body{"query_instance_id": true, "prefill_worker_id": pre[0].drt.ID()}, prompt, at(pre[0], dec[1]))
	}
	s.change(func(k *Settings) { k.Strategy = protocol.StrategyDecodeFirst })
	ask("decode-first", false, body{"query_instance_id": true}, prompt, at(nil, dec[1]))
	resp := f.post("/v1/chat/completions", chatBody(body{"nvext": body{"query_instance_id": true}}))
	if e := extensionOf(t, readAll(t, resp)); e == nil || e.Workers == nil || len(e.TokenIDs) == 0 {
		t.Errorf("chat: %+v", e)
	}
	for _, fk := range append(pre, dec...) {
		if n := len(fk.got()) + f.load.InFlight(fk.drt.ID()) + f.prefillLoad.InFlight(fk.drt.ID()); n != 0 {
			t.Errorf("%s was asked or is booked", fk.name)
		}
	}
	if n := len(f.decisions.find("", 10)); n != 0 {
		t.Errorf("%d decisions are kept", n)
	}
	f.admission.mu.Lock()
	if n := len(f.admission.gates); n != 0 {
		t.Errorf("%d gates have places", n)
	}
	f.admission.mu.Unlock()

	s.change(func(k *Settings) {
		k.Strategy, k.Prefill.Enforce, k.Prefill.MaxQueueDepth = protocol.StrategyPrefillFirst, true, 0
	})
	resp = f.post("/v1/completions", textBody(body{"prompt": prompt, "nvext": body{"query_instance_id": true}}))
	if resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("no prefill worker has room: status %d, %s", resp.StatusCode, readAll(t, resp))
	}
	for _, bad := range []body{{"annotations": []string{"llm_metrics"}}, {"annotations": "x"}, {"query_instance_id": "x"}} {
		resp := f.post("/v1/completions", textBody(body{"nvext": bad}))
		if text := readAll(t, resp); resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%v: status %d, %s", bad, resp.StatusCode, text)
		}
	}
	// What was said comes true.
	s.change(func(k *Settings) { k.Prefill.MaxQueueDepth = 100 })
	e := extensionOf(t, readAll(t, f.post("/v1/completions", textBody(body{"prompt": prompt, "nvext": body{"extra_fields": []string{"worker_id"}}}))))
	if e == nil || *e.Workers != at(pre[1], dec[1]) || e.TokenIDs != nil {
		t.Errorf("ran on %+v", e)
	}
}
