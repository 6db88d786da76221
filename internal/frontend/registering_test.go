package frontend

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/patience"
)

// A worker that registers again after the store has lost its data is found before its model
// card is. Requests wait for the card.
func TestRequestsWaitForACard(t *testing.T) {
	for _, comes := range []bool{true, false} {
		w := newWorld(t)
		fk := w.fake("worker-1", say("abc"))
		f := w.frontend(func(f *Frontend) {
			if !comes {
				f.limits.card = 50 * time.Millisecond
			}
		}).waitModel(1)
		drt := w.runtime("worker-2", nil)
		component := cluster.RoleDecode.Component()
		if _, err := drt.Serve(t.Context(), component, cluster.EndpointGenerate, fk.handler(say("abc"))); err != nil {
			t.Fatal(err)
		}
		if err := fk.served.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		patience.Until(t, "only the second one is found", func() bool {
			all := f.workers.Instances()
			return len(all) == 1 && all[0].InstanceID == drt.ID()
		})
		answered := make(chan string)
		begin := time.Now()
		go func() {
			resp := f.post("/v1/completions", textBody(nil))
			answered <- resp.Status + readAll(t, resp)
		}()
		if comes {
			body, err := json.Marshal(fk.card)
			if err != nil {
				t.Fatal(err)
			}
			key := func(id cluster.InstanceID) string {
				return cluster.CardKey(cluster.DefaultNamespace, component, cluster.EndpointGenerate, id)
			}
			if _, err := drt.PutOwned(t.Context(), key, func(cluster.InstanceID) []byte { return body }); err != nil {
				t.Fatal(err)
			}
		}
		got, want := <-answered, map[bool]int{true: http.StatusOK, false: http.StatusServiceUnavailable}[comes]
		if !strings.Contains(got, http.StatusText(want)) {
			t.Errorf("comes %t: %s", comes, got)
		}
		if !comes && time.Since(begin) < f.limits.card {
			t.Errorf("refused after %s", time.Since(begin))
		}
	}
}

// A worker that is left out, because it serves another model under the same name, is not
// waited for.
func TestRequestsWaitForNoWorkerThatIsLeftOut(t *testing.T) {
	w := newWorld(t)
	first := w.fake("worker-1", say("abc"))
	f := w.frontend(func(f *Frontend) { f.limits.card = time.Hour }).waitModel(1)
	drt := w.runtime("worker-2", nil)
	other := first.card
	other.BlockSize *= 2
	body, err := json.Marshal(other)
	if err != nil {
		t.Fatal(err)
	}
	key := func(id cluster.InstanceID) string {
		return cluster.CardKey(cluster.DefaultNamespace, cluster.RoleDecode.Component(), cluster.EndpointGenerate, id)
	}
	if _, err := drt.PutOwned(t.Context(), key, func(cluster.InstanceID) []byte { return body }); err != nil {
		t.Fatal(err)
	}
	patience.Until(t, "its card is read", func() bool { return (*f.registry.carded.Load())[drt.ID()] })
	if _, err := drt.Serve(t.Context(), cluster.RoleDecode.Component(), cluster.EndpointGenerate, first.handler(say("abc"))); err != nil {
		t.Fatal(err)
	}
	patience.Until(t, "it is found", func() bool { return len(f.workers.Instances()) == 2 })
	if f.awaited(f.registry.find(testModel)) {
		t.Error("a worker that is left out is waited for")
	}
}

// Requests wait while the only worker is in quarantine. It may be in order again, or another
// one may come.
func TestRequestsWaitForTheEndOfAQuarantine(t *testing.T) {
	w := newWorld(t)
	fk := w.fake("worker-1", say("abc"))
	f := w.frontend(func(f *Frontend) { f.limits.card = time.Hour }).waitModel(1)
	f.workers.ReportDown(fk.drt.ID())
	if n := len(f.workers.Instances()); n != 0 {
		t.Fatalf("%d workers can be called", n)
	}
	answered := make(chan string, 1)
	go func() {
		resp := f.post("/v1/completions", textBody(nil))
		answered <- resp.Status + readAll(t, resp)
	}()
	patience.Until(t, "the request runs", func() bool {
		return len(answered) > 0 || f.metric(`dynamo_frontend_inflight_requests{model="tiny"}`) == 1
	})
	w.fake("worker-2", say("abc"))
	if got := <-answered; !strings.Contains(got, http.StatusText(http.StatusOK)) {
		t.Error(got)
	}
}
