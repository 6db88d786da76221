package frontend

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/store"
)

// Requests wait for a worker while none serves the model and the topology has some: the
// last one was lost with its card, or drained, which leaves the card.
func TestRequestsWaitForASuccessor(t *testing.T) {
	for name, leave := range map[string]func(*testing.T, *fake){
		"lost": func(t *testing.T, fk *fake) { fk.vanish(t) },
		"drained": func(t *testing.T, fk *fake) {
			if err := fk.served.Leave(t.Context()); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			fk := w.fake("worker-1", say("abc"))
			f := w.frontend(func(f *Frontend) { f.limits.successor = time.Hour }).waitModel(1)
			declare := func(decode int) {
				topology := cluster.Topology{Model: cluster.ModelSpec{Name: testModel}, Decode: decode}
				if _, err := store.PutJSON(t.Context(), w.c.Store, cluster.TopologyKey(cluster.DefaultNamespace), topology); err != nil {
					t.Fatal(err)
				}
				patience.Until(t, "the topology is seen", func() bool { return f.registry.declares(testModel) == (decode > 0) })
			}
			declare(1)
			leave(t, fk)
			patience.Until(t, "it is gone", func() bool {
				return len(f.workers.All()) == 0 && (name == "drained" || f.registry.find(testModel) == nil)
			})
			ask := func() <-chan string {
				answered := make(chan string, 1)
				go func() {
					resp := f.post("/v1/completions", textBody(nil))
					answered <- resp.Status + readAll(t, resp)
				}()
				return answered
			}
			waits := func(answered <-chan string) {
				t.Helper()
				patience.Until(t, "the request runs", func() bool {
					return len(answered) > 0 || f.metric(`dynamo_frontend_inflight_requests{model="tiny"}`) == 1
				})
			}
			// The topology changes its mind.
			first := ask()
			waits(first)
			declare(0)
			if got := <-first; !strings.Contains(got, http.StatusText(http.StatusServiceUnavailable)) {
				t.Errorf("without workers in the topology: %s", got)
			}
			declare(1)
			second := ask()
			waits(second)
			w.fake("worker-2", say("abc"))
			if got := <-second; !strings.Contains(got, http.StatusText(http.StatusOK)) {
				t.Errorf("with a successor: %s", got)
			}
		})
	}
}

// No more than so many requests wait for a model's first worker; more are refused at once,
// as are large ones, and all when it does not come.
func TestRequestsThatDoNotWaitForASuccessor(t *testing.T) {
	w := newWorld(t)
	f, patient := w.frontend(func(f *Frontend) { f.limits.successor = 50 * time.Millisecond }), w.frontend(func(f *Frontend) { f.limits.successor = time.Hour })
	if _, err := store.PutJSON(t.Context(), w.c.Store, cluster.TopologyKey(cluster.DefaultNamespace), cluster.Topology{Model: cluster.ModelSpec{Name: testModel}, Decode: 1}); err != nil {
		t.Fatal(err)
	}
	patience.Until(t, "the topology is seen", func() bool { return f.registry.declares(testModel) && patient.registry.declares(testModel) })
	refused := func(f *front, what string, b body, least, most time.Duration) {
		t.Helper()
		begin := time.Now()
		resp := f.post("/v1/completions", b)
		took := time.Since(begin)
		if got := readAll(t, resp); resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" || took < least || took > most {
			t.Errorf("%s: %d after %s: %s", what, resp.StatusCode, took, got)
		}
	}
	refused(f, "nobody comes", textBody(nil), 50*time.Millisecond, time.Minute)
	f = patient
	refused(f, "a large one", textBody(body{"user": strings.Repeat("x", smallBody)}), 0, time.Minute)
	for range maxAwaiting {
		f.awaiting <- struct{}{}
	}
	refused(f, "too many", textBody(nil), 0, time.Minute)
	<-f.awaiting
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if _, _, bad := f.awaitModel(ctx, testModel, func() {}, func() (func(), *apiError) { return func() {}, nil }); bad == nil {
			t.Error("a request whose client has left gets a model")
		}
	}()
	patience.Until(t, "it waits", func() bool { return len(f.awaiting) == maxAwaiting })
	cancel()
	<-done
	if n := len(f.awaiting); n != maxAwaiting-1 {
		t.Errorf("%d wait", n)
	}
}

// TestModelOfAnotherNameReplaces: while one model replaces another, the new name is unavailable until a
// worker serves it and never unknown; the old one is served as long as it has workers, and is
// unknown from then on.
func TestModelOfAnotherNameReplaces(t *testing.T) {
	const next = "next"
	w := newWorld(t)
	old := w.fake("worker-1", say("old"))
	f := w.frontend(func(f *Frontend) { f.limits.successor = 20 * time.Millisecond }).waitModel(1)
	patient := w.frontend(func(f *Frontend) { f.limits.successor = time.Hour }).waitModel(1)
	declare := func(name string) {
		t.Helper()
		topology := cluster.Topology{Model: cluster.ModelSpec{Name: name}, Decode: 1}
		if _, err := store.PutJSON(t.Context(), w.c.Store, cluster.TopologyKey(cluster.DefaultNamespace), topology); err != nil {
			t.Fatal(err)
		}
		patience.Until(t, "the topology is seen", func() bool { return f.registry.declares(name) && patient.registry.declares(name) })
	}
	expect := func(when, name string, status int) {
		t.Helper()
		resp := f.post("/v1/completions", textBody(body{"model": name}))
		got := readAll(t, resp)
		if resp.StatusCode != status || (resp.Header.Get("Retry-After") != "") != (status == http.StatusServiceUnavailable) {
			t.Errorf("%s, %s: %d, Retry-After %q: %s", when, name, resp.StatusCode, resp.Header.Get("Retry-After"), got)
		}
		if resp := f.do("GET", "/v1/models/"+name, nil); resp.StatusCode != status {
			t.Errorf("%s, /v1/models/%s: %d", when, name, resp.StatusCode)
		}
	}
	declare(testModel)
	expect("before", next, http.StatusNotFound)
	declare(next)
	expect("declared", next, http.StatusServiceUnavailable)
	expect("declared", testModel, http.StatusOK)
	waiting := make(chan string, 1)
	go func() {
		resp := patient.post("/v1/completions", textBody(body{"model": next}))
		waiting <- resp.Status + readAll(t, resp)
	}()
	patience.Until(t, "a request waits for the new model", func() bool { return len(patient.awaiting) == 1 || len(waiting) == 1 })
	old.vanish(t)
	patience.Until(t, "the old model is gone", func() bool { return f.registry.find(testModel) == nil })
	expect("between", next, http.StatusServiceUnavailable)
	expect("between", testModel, http.StatusNotFound)
	w.fake("worker-2", say("new"), func(fk *fake) { fk.card.DisplayName, fk.card.Digest = next, "sha256:next" })
	if got := <-waiting; !strings.Contains(got, http.StatusText(http.StatusOK)) || !strings.Contains(got, "new") {
		t.Errorf("the request that waited: %s", got)
	}
	patience.Until(t, "the new model is served", func() bool {
		m := f.registry.find(next)
		return m != nil && m.proc != nil && len(f.workers.Instances()) == 1
	})
	expect("after", next, http.StatusOK)
	expect("after", testModel, http.StatusNotFound)
}
