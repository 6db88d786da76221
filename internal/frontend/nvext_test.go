package frontend

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
)

// prefilledBy answers as a decode worker does whose prompt came from the prefill worker
// that the frontend chose.
func prefilledBy(text string) generator {
	return func(_ context.Context, req protocol.PreprocessedRequest, send func(protocol.EngineOutput) error) error {
		timing := &protocol.Timing{Worker: "decode", Prefill: "local", PrefillWhy: "forced", QueueNS: int64(2 * time.Millisecond), PrefillNS: int64(3 * time.Millisecond)}
		if p := req.Disagg.Params; p != nil {
			timing.Prefill, timing.PrefillWhy, timing.PrefillWay = p.Worker, "", protocol.WayPull
			timing.KV = protocol.KVMoved{NS: int64(5 * time.Millisecond), ExposedNS: int64(4 * time.Millisecond), Bytes: 6, Transport: "shm"}
		}
		return send(protocol.EngineOutput{TokenIDs: tokens(text), Timing: timing, Finish: protocol.FinishStop, DecodeNS: int64(7 * time.Millisecond)})
	}
}

// extensionOf reads the extension out of an answer, or out of the last event of a stream.
func extensionOf(t *testing.T, text string) (e *extension) {
	t.Helper()
	var a struct {
		NVExt *extension `json:"nvext"`
	}
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return a.NVExt
}

// A request runs on the workers that it names, whatever the strategy is, and its answer
// tells of them.
func TestRequestNamesItsWorkers(t *testing.T) {
	w := newWorld(t)
	pre := []*fake{w.prefiller("worker-1", holds("worker-1", nil)), w.prefiller("worker-2", holds("worker-2", nil))}
	dec := []*fake{w.fake("worker-3", prefilledBy("abc")), w.fake("worker-4", prefilledBy("abc"))}
	s := routing()
	f := w.routed(s, 2, 2)
	for _, strategy := range []string{protocol.StrategyPrefillFirst, protocol.StrategyDecodeFirst} {
		s.change(func(k *Settings) { k.Strategy = strategy })
		for i := range 4 {
			p, d := pre[i/2], dec[i%2]
			before := len(p.got())
			want := body{"decode_worker_id": d.drt.ID(), "prefill_worker_id": p.drt.ID(), "extra_fields": []string{"worker_id", "timing"}}
			streamed := i == 3
			ask := textBody(body{"prompt": "short", "nvext": want, "stream": streamed})
			var e *extension
			if streamed {
				got := readStream(t, f.post("/v1/completions", ask))
				if e = extensionOf(t, got.events[len(got.events)-1]); got.usage != nil || !got.done {
					t.Errorf("%+v", got)
				}
			} else {
				e = extensionOf(t, readAll(t, f.post("/v1/completions", ask)))
			}
			if e == nil || e.Workers == nil || *e.Workers != ranAt(p, d) {
				t.Errorf("%s: ran on %+v, want %s and %s", strategy, e, p.name, d.name)
				continue
			}
			if n := len(p.got()) - before; n != 1 {
				t.Errorf("%s: %s was asked %d times", strategy, p.name, n)
			}
			if x := e.Timing; x == nil || x.Prefill != "remote" || x.PrefillWay != "pull" || x.QueueMS != 2 || x.PrefillMS != 3 || x.TTFTMS == nil || x.TotalMS < *x.TTFTMS || x.Moves != 0 || x.DecodeMS != 7 || x.KV == nil || *x.KV != (kvTiming{5, 4, 6, "shm"}) {
				t.Errorf("%s: %+v", strategy, x)
			}
		}
	}
}

func TestRequestWantsALocalPrefill(t *testing.T) {
	w := newWorld(t)
	pre := w.prefiller("worker-1", holds("worker-1", nil))
	dec := w.fake("worker-2", prefilledBy("abc"))
	f := w.routed(routing(), 1, 1)
	long := longPrompt()
	long["nvext"] = body{"prefill": "local", "extra_fields": []string{"worker_id"}}
	e := extensionOf(t, readAll(t, f.post("/v1/completions", long)))
	if e == nil || e.Timing != nil || *e.Workers != ranAt(nil, dec) || len(pre.got()) != 0 || dec.got()[0].Disagg.Force != "local" {
		t.Errorf("%+v, hints %+v", e, dec.got()[0].Disagg)
	}
	// A short prompt, remotely; and nothing is told that was not asked for.
	text := readAll(t, f.post("/v1/completions", textBody(body{"prompt": "short", "nvext": body{"prefill": "remote"}})))
	if len(pre.got()) != 1 || strings.Contains(text, "nvext") {
		t.Errorf("%d prefills, %s", len(pre.got()), text)
	}
}

// A worker that was named is not replaced by another one.
func TestNamedWorkerIsNotReplaced(t *testing.T) {
	w := newWorld(t)
	busy, idle := w.fake("worker-1", refuse(requestplane.KindOverloaded)), w.fake("worker-2", say("abc"))
	f := w.frontend().waitModel(2)
	resp := f.post("/v1/completions", textBody(body{"nvext": body{"decode_worker_id": busy.drt.ID()}}))
	if text := readAll(t, resp); resp.StatusCode != http.StatusTooManyRequests || len(idle.got()) != 0 || len(busy.got()) == 0 {
		t.Errorf("status %d, %s; %d requests went elsewhere", resp.StatusCode, text, len(idle.got()))
	}
}

func TestBadNVExt(t *testing.T) {
	w := newWorld(t)
	w.prefiller("worker-1", holds("worker-1", nil))
	dec := w.fake("worker-2", say("abc"))
	f := w.routed(routing(), 1, 1)
	for _, tc := range []struct {
		nvext any
		param string
	}{
		{"x", "nvext"},
		{body{"weather": 1}, "nvext.weather"},
		{body{"decode_worker_id": "worker-7"}, "nvext.decode_worker_id"},
		{body{"decode_worker_id": ""}, "nvext.decode_worker_id"},
		{body{"decode_worker_id": strings.Repeat("1", 300)}, "nvext.decode_worker_id"},
		{body{"decode_worker_id": []int{1}}, "nvext.decode_worker_id"},
		{body{"decode_worker_id": "worker-1"}, "nvext.decode_worker_id"},
		{body{"decode_worker_id": 12345}, "nvext.decode_worker_id"},
		{body{"prefill_worker_id": dec.drt.ID()}, "nvext.prefill_worker_id"},
		{body{"prefill": "elsewhere"}, "nvext.prefill"},
		{body{"prefill": 7}, "nvext.prefill"},
		{body{"extra_fields": "timing"}, "nvext.extra_fields"},
		{body{"extra_fields": []string{"color"}}, "nvext.extra_fields"},
	} {
		resp := f.post("/v1/completions", textBody(body{"nvext": tc.nvext}))
		text := readAll(t, resp)
		if resp.StatusCode != http.StatusBadRequest || !strings.Contains(text, `"param":"`+tc.param+`"`) {
			t.Errorf("%v: status %d, %s", tc.nvext, resp.StatusCode, text)
		}
	}
}

// ranAt is what an answer tells of its workers; p is nil for a local prefill.
func ranAt(p, d *fake) ranOn {
	out := newRanOn(d.drt.ID(), d.name)
	if p != nil {
		out.prefilled(p.drt.ID(), p.name)
	}
	return *out
}

// Workers are named by name or id, and an id in digits of either base, as a number or a text.
func TestWaysToNameAWorker(t *testing.T) {
	w := newWorld(t)
	w.fake("worker-1", say("abc"))
	two := w.fake("worker-2", say("abc"))
	f := w.frontend().waitModel(2)
	id := two.drt.ID()
	for _, ref := range []any{id, uint64(id), fmt.Sprint(uint64(id)), id.String(), hexID(id), strings.ToUpper(hexID(id)), "worker-2"} {
		text, isText := ref.(string)
		if isText && text == id.String() && !strings.ContainsAny(text, "abcdef") {
			continue // digits alone are decimal
		}
		e := extensionOf(t, readAll(t, f.post("/v1/completions", textBody(body{"nvext": body{"decode_worker_id": ref, "extra_fields": []string{"worker_id"}}}))))
		if e == nil || *e.Workers != ranAt(nil, two) {
			t.Errorf("%v: %+v", ref, e)
		}
		if !isText {
			continue
		}
		resp := f.do(http.MethodPost, "/v1/completions", reader(t, textBody(nil)), "x-dynctl-route", "1", workerHeader, text)
		if told := resp.Header.Get("x-dynctl-route"); !strings.Contains(told, `"worker":"worker-2"`) {
			t.Errorf("header %s: %s %s", text, told, readAll(t, resp))
		}
	}
}

// moves starts two decode workers with these names. The one that is asked first answers with
// an output and hands the sequence over to the other one, which says a last output.
func (w *world) moves(names [2]string, output, last protocol.EngineOutput, decodeNS int64) {
	var asked atomic.Int32
	var all [2]atomic.Pointer[fake]
	for i, name := range names {
		all[i].Store(w.fake(name, func(_ context.Context, _ protocol.PreprocessedRequest, send func(protocol.EngineOutput) error) error {
			if asked.Add(1) > 1 {
				return send(last)
			}
			if err := send(output); err != nil {
				return err
			}
			to := all[1-i].Load()
			return send(protocol.EngineOutput{Finish: protocol.FinishMoved, DecodeNS: decodeNS, Moved: &protocol.Moved{Worker: names[1-i], InstanceID: to.drt.ID(), Handover: "h"}})
		}))
	}
}

// The time of decoding is the sum of what the workers of a request say, each of which is in the
// decision for that worker; a transfer that did not take place is absent.
func TestTimingOfSeveralDecodeWorkers(t *testing.T) {
	w := newWorld(t)
	w.moves([2]string{"worker-1", "worker-2"},
		protocol.EngineOutput{TokenIDs: tokens("ab"), Timing: &protocol.Timing{Worker: "first", Prefill: "local", QueueNS: 1, PrefillNS: 2}},
		protocol.EngineOutput{
			TokenIDs: tokens("c"), Finish: protocol.FinishStop, DecodeNS: int64(5 * time.Millisecond),
			Timing: &protocol.Timing{Worker: "second", Prefill: "first", KV: protocol.KVMoved{NS: 4, ExposedNS: 3, Bytes: 6, Transport: "shm"}},
		}, int64(3*time.Millisecond))
	f := w.frontend().waitModel(2)
	e := extensionOf(t, readAll(t, f.post("/v1/completions", textBody(body{"nvext": body{"extra_fields": []string{"timing"}}}))))
	if e == nil || e.Timing == nil || e.Timing.DecodeMS != 8 || e.Timing.KV != nil || e.Timing.Moves != 1 {
		t.Fatalf("%+v", e)
	}
	ds := f.decisions.find("", 1)
	if len(ds) != 2 || ds[0].DecodeNS != int64(3*time.Millisecond) || ds[0].KV != nil || ds[0].QueueNS != 1 || ds[0].PrefillNS != 2 ||
		ds[1].DecodeNS != int64(5*time.Millisecond) || ds[1].KV == nil || *ds[1].KV != (cluster.RoutedKV{NS: 4, ExposedNS: 3, Bytes: 6, Transport: "shm"}) {
		t.Errorf("%+v", ds)
	}
}

// What only the prefill worker knows of a pull is in the decision about the worker that pulled,
// and in none about those after it.
func TestTimingOfAPull(t *testing.T) {
	w := newWorld(t)
	w.prefiller("worker-1", func(ctx context.Context, req protocol.PreprocessedRequest, send func(protocol.EngineOutput) error) error {
		o := protocol.EngineOutput{Timing: &protocol.Timing{Worker: "worker-1", Prefill: "worker-1", PrefillNS: 9, Encoded: protocol.Encoded{Parts: 2}}}
		o.Params = &protocol.DisaggregatedParams{Worker: "worker-1", Tokens: len(req.TokenIDs) - 1, Ticket: req.RequestID, Deadline: req.Disagg.Deadline}
		if err := send(o); err != nil {
			return err
		}
		<-ctx.Done()
		return context.Cause(ctx)
	})
	w.moves([2]string{"worker-2", "worker-3"},
		protocol.EngineOutput{TokenIDs: tokens("a"), Timing: &protocol.Timing{Worker: "first", Prefill: "worker-1", PrefillWay: protocol.WayPull, PrefillNS: 20}},
		protocol.EngineOutput{TokenIDs: tokens("b"), Timing: &protocol.Timing{Worker: "second", Prefill: "first"}, Finish: protocol.FinishStop}, 0)
	f := w.routed(routing(), 1, 2)
	if got := readAll(t, f.post("/v1/completions", longPrompt())); !strings.Contains(got, `"ab"`) {
		t.Fatal(got)
	}
	var decodes []*cluster.RouterDecision
	for _, d := range f.decisions.find("", 1) {
		if d.Phase == cluster.RoleDecode {
			decodes = append(decodes, &d)
		}
	}
	if len(decodes) != 2 {
		t.Fatalf("%d decisions about decode workers", len(decodes))
	}
	pulled, moved := decodes[0], decodes[1]
	if pulled.ComputeNS != 9 || pulled.PrefillNS != 20 || pulled.Images == nil || pulled.Images.Count != 2 {
		t.Errorf("of the pull: %+v", pulled)
	}
	if moved.ComputeNS != 0 || moved.Images != nil {
		t.Errorf("after the move: %+v", moved)
	}
}
