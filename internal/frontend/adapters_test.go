package frontend

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/blockhash"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/protocol"
)

// adapted gives a fake adapters.
func adapted(names ...string) func(*fake) {
	return func(fk *fake) { fk.card.Adapters = names }
}

// parents lists the models of a frontend, each with its parent.
func (f *front) parents(t *testing.T) map[string]string {
	t.Helper()
	var list struct {
		Data []struct{ ID, Parent string }
	}
	resp, err := http.Get(f.url + "/v1/models")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, m := range list.Data {
		out[m.ID] = m.Parent
	}
	return out
}

// A request for an adapter goes to servers that have it, with both legs, under a digest and with
// hashes of its own.
func TestAdapters(t *testing.T) {
	w := newWorld(t)
	plain := w.prefiller("p-plain", handsOver("{}"), vllmWorker("a"))
	pre := w.prefiller("p", handsOver("{}"), vllmWorker("a"), adapted("sql", "tuned"))
	has := w.fake("d", say("abcdef"), vllmWorker("a"), adapted("odd\nname", "tuned"))
	others := []*fake{w.fake("d-plain", say("abcdef"), vllmWorker("a")), w.fake("own", say("abcdef"))}
	stats := listen[cluster.FrontendStats](w, cluster.TopicFrontendStats)
	s := routing()
	s.change(func(k *Settings) { k.RecordLoad = true })
	f := w.routed(s, 2, 3)
	patience.Until(t, "the adapter is served", func() bool {
		m := f.registry.find("tuned")
		return m != nil && len(m.prefills) == 1 && len(m.workers) == 1 && len(f.registry.find(testModel).prefills) == 2
	})
	if got := f.parents(t); len(got) != 2 || got["tuned"] != testModel || got[testModel] != "" {
		t.Errorf("models %v", got)
	}
	ask := func(model string) {
		t.Helper()
		b := longPrompt()
		b["model"] = model
		if a := wholeAnswer(t, f.post("/v1/completions", b)); a.Choices[0].Text != "abcdef" || a.Model != model {
			t.Fatalf("%+v", a)
		}
	}
	for range 4 {
		ask("tuned")
	}
	if len(pre.got()) != 4 || len(has.got()) != 4 || len(plain.got()) != 0 || len(others[0].got())+len(others[1].got()) != 0 {
		t.Errorf("%d and %d prefills, %d decodes", len(pre.got()), len(plain.got()), len(has.got()))
	}
	digest := cluster.AdapterDigest(testDigest, "tuned")
	for _, r := range append(pre.got(), has.got()...) {
		if r.Adapter != "tuned" || r.Model != "tuned" || r.ModelSum != digest {
			t.Errorf("adapter %q, model %q, digest %s", r.Adapter, r.Model, r.ModelSum)
		}
	}
	asked := 4
	for asked < 100 && len(others[0].got())+len(others[1].got()) == 0 { // servers that are as good are drawn
		ask(testModel)
		asked++
	}
	for _, fk := range append(others, plain, pre, has) {
		for _, r := range fk.got() {
			if (r.Adapter == "") != (r.Model == testModel) || (r.ModelSum == testDigest) != (r.Adapter == "") {
				t.Errorf("%s: adapter %q, model %q, digest %s", fk.name, r.Adapter, r.Model, r.ModelSum)
			}
		}
	}
	if len(others[1].got()) == 0 && len(others[0].got()) == 0 {
		t.Error("all requests for the base went to the server with the adapter")
	}
	if m := f.registry.find("tuned"); m.card.HashSeed != blockhash.AdapterSeed(cluster.DefaultHashSeed, "tuned") || m.card.HashSeed == cluster.DefaultHashSeed {
		t.Errorf("hash seed %d", m.card.HashSeed)
	}
	recorded, _ := f.record.of(time.Now(), time.Now().Add(-time.Minute))
	if len(recorded) != asked {
		t.Errorf("%d requests are recorded", len(recorded))
	}
	for _, q := range recorded {
		if q.Model != testModel {
			t.Errorf("a request is recorded as load of %s", q.Model)
		}
	}
	load := map[string]cluster.ModelLoad{}
	patience.Until(t, "the figures of all requests are published", func() bool {
		load = map[string]cluster.ModelLoad{}
		for _, x := range stats() {
			for _, m := range x.Models {
				m.Started, m.ServedOf = m.Started+load[m.Model].Started, m.ServedOf+load[m.Model].ServedOf
				load[m.Model] = m
			}
		}
		return load[testModel].ServedOf == asked || load["tuned"].ServedOf > 0
	})
	if m := load[testModel]; len(load) != 1 || m.Started != asked {
		t.Errorf("the planner is told %+v", load)
	}
	b := longPrompt()
	for _, unknown := range []string{"sql", "odd\nname", "tuned2"} { // no decode worker has the first
		b["model"] = unknown
		if resp := f.post("/v1/completions", b); resp.StatusCode != http.StatusNotFound {
			t.Errorf("%q: %s", unknown, resp.Status)
		}
	}
}

// Adapters come and go while their servers run, and clients are told as of any model.
func TestAdaptersChange(t *testing.T) {
	w := newWorld(t)
	fk := w.fake("d", say("abcdef"), vllmWorker("a"))
	f := w.configured(func(c *Config) { c.Settings = routing().get }).waitModel(1)
	ask := func() int {
		return f.post("/v1/completions", textBody(body{"model": "tuned", "prompt": "ab"})).StatusCode
	}
	for range 2 {
		if code := ask(); code != http.StatusNotFound {
			t.Fatalf("status %d without the adapter", code)
		}
		fk.adapts(t, "tuned")
		patience.Until(t, "the adapter is served", func() bool { return ask() == http.StatusOK })
		created := f.registry.find("tuned").created
		fk.adapts(t, "other", "tuned")
		patience.Until(t, "another one is, too", func() bool { return f.registry.find("other") != nil })
		if now := f.registry.find("tuned").created; !now.Equal(created) {
			t.Errorf("created at %s, and again at %s", created, now)
		}
		fk.adapts(t)
		patience.Until(t, "both are gone", func() bool { return f.registry.find("tuned") == nil && f.registry.find("other") == nil })
	}
}

// An adapter hides neither a model nor another one's adapter, whichever comes first.
func TestAdaptersHideNothing(t *testing.T) {
	w := newWorld(t)
	other := func(fk *fake) { fk.card.DisplayName, fk.card.Digest = "b", "digest of b" }
	tiny := w.fake("d", say("abcdef"), adapted("b", "mine", "shared"))
	f := w.configured(func(c *Config) { c.Settings = routing().get }).waitModel(1)
	patience.Until(t, "adapters are served", func() bool { return len(f.parents(t)) == 4 })
	fk := w.fake("d-b", say("xyz"), other, adapted("shared", testModel))
	patience.Until(t, "the model is served in place of the adapter", func() bool { return f.parents(t)["b"] == "" })
	check := func(shared string) {
		t.Helper()
		want := map[string]string{testModel: "", "b": "", "mine": testModel, "shared": shared}
		patience.Until(t, "each name is served as it should be", func() bool {
			got := f.parents(t)
			return len(got) == len(want) && got[testModel] == "" && got["b"] == "" && got["mine"] == want["mine"] && got["shared"] == shared
		})
	}
	check(testModel) // it was first
	if a := wholeAnswer(t, f.post("/v1/completions", textBody(body{"model": "b", "prompt": "ab"}))); a.Choices[0].Text != "xyz" {
		t.Errorf("%+v", a)
	}
	tiny.adapts(t, "mine")
	check("b")
	tiny.adapts(t, "mine", "shared")
	check("b") // it is served already, though not the first by name
	fk.vanish(t)
	patience.Until(t, "the other model is gone", func() bool { return f.parents(t)["shared"] == testModel })
}

// An adapter's requests take places of its model, whose workers compute them.
func TestAdaptersShareAdmission(t *testing.T) {
	a := newAdmission()
	base := &servedModel{name: "m", seats: 3}
	base.limits.MaxSeqs = 1
	tuned := *base
	tuned.name, tuned.base = "tuned", "m"
	tuned.workers = map[cluster.InstanceID]cluster.RuntimeConfig{1: {}}
	room := aheadOfWorkers * 3
	for i, m := range []*servedModel{base, &tuned} {
		if _, err := a.reserve(m, "a", room/2, 1, 0); err != nil {
			t.Errorf("model %d: %v", i, err)
		}
	}
	if used, waiting := a.gates["m"].Counts(); len(a.gates) != 1 || used+waiting != room/2*2 {
		t.Errorf("%d gates; %d places used, %d wait", len(a.gates), used, waiting)
	}
}

func TestTooManyAdapters(t *testing.T) {
	var names []string
	for i := range cluster.MaxAdapters + 3 {
		names = append(names, strings.Repeat("x", i+1))
	}
	got := byAdapter([]cardAt{{ModelCard: cluster.ModelCard{Adapters: names}}})
	if len(got) != cluster.MaxAdapters || got[names[cluster.MaxAdapters]] != nil {
		t.Errorf("%d adapters of one card", len(got))
	}
	for name, ok := range map[string]bool{"": false, "a": true, "a/b c": true, "a\x1b[1m": false, "é": true, "a\xff": false, strings.Repeat("x", cluster.MaxAdapterName): true} {
		if cluster.ValidAdapter(name) != ok || cluster.ValidAdapter(name+strings.Repeat("x", cluster.MaxAdapterName+1)) {
			t.Errorf("name %q", name)
		}
	}
}

// The body of a client has the name of the adapter, which the server knows, and so has the answer.
func TestAdaptersOfText(t *testing.T) {
	w := newWorld(t)
	fk := w.fake("d", raw(`{"id":"1","model":"tiny","choices":[]}`), textModel, adapted("tuned"))
	f := w.configured(func(c *Config) { c.Settings = routing().get }).waitModel(1)
	patience.Until(t, "the adapter is served", func() bool { return f.parents(t)["tuned"] == testModel })
	resp, err := http.Post(f.url+"/v1/completions", "application/json", strings.NewReader(`{"model":"tuned","prompt":"a"}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || !strings.Contains(string(b), `"model":"tuned"`) {
		t.Errorf("%s, %v", b, err)
	}
	r := fk.got()
	if len(r) != 1 || r[0].Adapter != "tuned" || r[0].ModelSum != cluster.AdapterDigest(testDigest, "tuned") || r[0].API != protocol.APICompletions {
		t.Errorf("%+v", r)
	}
	if !slices.ContainsFunc(f.registry.list(), func(m *servedModel) bool { return m.name == "tuned" && m.text }) {
		t.Error("it is no model of text")
	}
}
