package frontend

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/router"
)

// full tells the frontend that so many of a worker's 100 blocks are in use.
func (f *front) full(fk *fake, inUse int) {
	f.caches.came(fk.drt.ID(), fk.name) // fakes have no endpoint of KV events
	f.caches.status(cluster.WorkerStatus{InstanceID: fk.drt.ID(), Stats: cluster.WorkerStats{KVTotal: 100, KVActive: inUse - 1, KVIncoming: 1}})
}

// A busy worker gets no new requests. If all are busy, or the one that the request names, it
// is refused at once and with the time to retry; limits are changed while requests come.
func TestBusyWorkers(t *testing.T) {
	w := newWorld(t)
	one, two := w.fake("worker-1", say("abc")), w.fake("worker-2", say("abc"))
	s := routing()
	s.change(func(k *Settings) { k.Strategy, k.Busy = protocol.StrategyDecodeFirst, router.BusyLimits{KVShare: 0.9} })
	f := w.routed(s, 0, 2)
	refused := func(series string, b body, message string) {
		t.Helper()
		before := max(0, f.metric(series))
		begin := time.Now()
		resp := f.post("/v1/completions", b)
		e := failureOf(t, resp)
		if resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") != "1" || e.code() != "overloaded" || !strings.Contains(e.Error.Message, message) {
			t.Errorf("status %d, headers %v, %+v", resp.StatusCode, resp.Header, e)
		}
		if took := time.Since(begin); took > f.limits.takeover {
			t.Errorf("refused after %s", took)
		}
		patience.Until(t, series+" counts", func() bool { return f.metric(series) == before+1 })
	}
	const all = `dynamo_frontend_refused_requests_total{model="tiny",reason="workers_busy"}`
	f.full(one, 93)
	f.full(two, 90)
	for range 4 {
		wholeAnswer(t, f.post("/v1/completions", textBody(nil)))
	}
	if len(one.got()) != 0 || len(two.got()) != 4 {
		t.Errorf("the busy one got %d, the other %d", len(one.got()), len(two.got()))
	}
	newest := f.decisions.find("", 1)
	if c := newest[0].Candidates; len(c) != 2 || c[1].Worker != "worker-1" || c[1].Excluded != "busy: 93 % of its KV blocks are in use (threshold 90 %)" {
		t.Errorf("decided %+v", newest)
	}
	refused(`dynamo_frontend_refused_requests_total{model="tiny",reason="named_worker_busy"}`, textBody(body{"nvext": body{"decode_worker_id": one.drt.ID()}}), "that the request names")
	f.full(two, 100)
	refused(all, textBody(nil), "All workers are busy")
	if newest := f.decisions.find("", 1); newest[0].Chosen != "" || newest[0].Candidates[0].Excluded == "" {
		t.Errorf("the refusal is announced as %+v", newest)
	}
	s.change(func(k *Settings) { k.Busy.KVShare = 0 })
	wholeAnswer(t, f.post("/v1/completions", textBody(nil)))
	s.change(func(k *Settings) { k.Busy.KVShare = 0.9 })
	refused(all, textBody(nil), "All workers are busy")
	// What a worker said long ago does not keep it excluded.
	f.caches.mu.Lock()
	f.caches.workers[two.drt.ID()].told = time.Now().Add(-oldStatus)
	f.caches.mu.Unlock()
	wholeAnswer(t, f.post("/v1/completions", textBody(nil)))
}

// A request that one worker has refused does not wait for the others that are busy.
func TestBusyWorkersAfterARefusal(t *testing.T) {
	w := newWorld(t)
	w.fake("worker-1", refuse(requestplane.KindDraining))
	two := w.fake("worker-2", say("abc"))
	s := routing()
	s.change(func(k *Settings) { k.Strategy, k.Busy = protocol.StrategyDecodeFirst, router.BusyLimits{KVShare: 0.9} })
	f := w.routed(s, 0, 2)
	f.full(two, 95)
	resp := f.post("/v1/completions", textBody(nil))
	if e := failureOf(t, resp); resp.StatusCode != http.StatusTooManyRequests || e.code() != "overloaded" {
		t.Errorf("status %d, %+v", resp.StatusCode, e)
	}
}

// A prompt is not computed for decode workers that would refuse it.
func TestBusyWorkersBeforeThePrefill(t *testing.T) {
	w := newWorld(t)
	pre := w.prefiller("worker-1", holds("worker-1", nil))
	dec := w.fake("worker-2", prefilledBy("abc"))
	s := routing()
	s.change(func(k *Settings) { k.Busy = router.BusyLimits{KVShare: 0.9} })
	f := w.routed(s, 1, 1)
	f.full(dec, 95)
	if resp := f.post("/v1/completions", longPrompt()); resp.StatusCode != http.StatusTooManyRequests || failureOf(t, resp).code() != "overloaded" {
		t.Errorf("status %d", resp.StatusCode)
	}
	if n := len(pre.got()); n != 0 {
		t.Errorf("the prefill worker was asked %d times", n)
	}
	f.full(dec, 50)
	wholeAnswer(t, f.post("/v1/completions", longPrompt()))
}

// A busy prefill worker gets no prompts: another one does, and the decode worker if all
// are busy.
func TestBusyPrefillWorkers(t *testing.T) {
	w := newWorld(t)
	one, two := w.prefiller("worker-1", holds("worker-1", nil)), w.prefiller("worker-2", holds("worker-2", nil))
	dec := w.fake("worker-3", prefilledBy("abc"))
	s := routing()
	s.change(func(k *Settings) { k.Busy = router.BusyLimits{KVShare: 0.9} })
	f := w.routed(s, 2, 1)
	f.full(one, 95)
	for range 3 {
		wholeAnswer(t, f.post("/v1/completions", longPrompt()))
	}
	if len(one.got()) != 0 || len(two.got()) != 3 {
		t.Errorf("the busy one got %d, the other %d", len(one.got()), len(two.got()))
	}
	f.full(two, 95)
	wholeAnswer(t, f.post("/v1/completions", longPrompt()))
	if last := dec.got()[3].Disagg; len(one.got())+len(two.got()) != 3 || last.Why != router.WhyPrefillsBusy {
		t.Errorf("the busy ones got %d and %d, the decode worker %+v", len(one.got()), len(two.got()), last)
	}
}

// A request that has output goes on at another worker, however busy that is.
func TestBusyWorkersTakeWhatHasBegun(t *testing.T) {
	w := newWorld(t)
	begun := make(chan struct{})
	release := make(chan struct{})
	one := w.fake("worker-1", say("abcdef", hold(3, release)))
	f := w.configured(func(c *Config) {
		c.Settings = func() Settings {
			return Settings{Policy: router.LeastLoaded, RemoteTimeout: time.Second, Busy: router.BusyLimits{KVShare: 0.9}}
		}
	}).waitModel(1)
	got := make(chan answer, 1)
	go func() { got <- wholeAnswer(t, f.post("/v1/completions", textBody(nil))) }()
	go func() {
		patience.Until(t, "the request has begun", func() bool { return one.running.Load() == 1 })
		close(begun)
	}()
	<-begun
	patience.Until(t, "tokens came", func() bool { return f.metric(`dynamo_frontend_output_tokens_total{model="tiny"}`) >= 3 })
	two := w.fake("worker-2", say("abcdef"))
	f.waitModel(2)
	f.full(two, 99)
	one.crash()
	if a := <-got; a.Choices[0].Text != "abcdef" {
		t.Errorf("got %+v", a)
	}
	if len(two.got()) == 0 {
		t.Error("worker-2 was not asked")
	}
	close(release)
}

// A worker that says that it may not answer gets no requests while there is another, and
// again when it is the last one, or has said nothing for a while.
func TestUnhealthyWorkerIsAvoided(t *testing.T) {
	w := newWorld(t)
	one, two := w.fake("worker-1", say("abc")), w.fake("worker-2", say("abc"))
	s := routing()
	s.change(func(k *Settings) { k.Strategy = protocol.StrategyDecodeFirst })
	f := w.routed(s, 0, 2)
	tell := func(fk *fake, why string) {
		f.caches.came(fk.drt.ID(), fk.name)
		f.caches.status(cluster.WorkerStatus{InstanceID: fk.drt.ID(), Unhealthy: why})
	}
	tell(one, "no answer")
	tell(two, "")
	for range 4 {
		wholeAnswer(t, f.post("/v1/completions", textBody(nil)))
	}
	if len(one.got()) != 0 || len(two.got()) != 4 {
		t.Errorf("the unhealthy one got %d, the other %d", len(one.got()), len(two.got()))
	}
	if newest := f.decisions.find("", 1); newest[0].Candidates[1].Excluded != "unhealthy: no answer" {
		t.Errorf("decided %+v", newest)
	}
	tell(two, "no answer either")
	wholeAnswer(t, f.post("/v1/completions", textBody(nil)))
	tell(two, "no answer either")
	f.caches.mu.Lock()
	f.caches.workers[one.drt.ID()].told = time.Now().Add(-oldStatus)
	f.caches.mu.Unlock()
	before := len(one.got())
	wholeAnswer(t, f.post("/v1/completions", textBody(nil)))
	if len(one.got()) != before+1 {
		t.Error("what a worker said long ago keeps it excluded")
	}
}
