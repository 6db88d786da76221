package frontend

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/store"
)

func TestModelAppearsAndDisappears(t *testing.T) {
	w := newWorld(t)
	f := w.frontend()
	resp := f.post("/v1/chat/completions", chatBody(nil))
	if e := failureOf(t, resp); resp.StatusCode != http.StatusNotFound || !strings.Contains(e.Error.Message, "no model is served") {
		t.Errorf("status %d, %+v", resp.StatusCode, e)
	}
	if _, list := f.get("/v1/models"); list != `{"data":[],"object":"list"}`+"\n" {
		t.Errorf("models %s", list)
	}
	for round := range 2 {
		fk := w.fake("worker-1", say("abc"))
		f.waitModel(1)
		status, item := f.get("/v1/models/" + testModel)
		var m struct {
			ID, Object    string
			Created       int64
			OwnedBy       string `json:"owned_by"`
			ContextWindow int    `json:"context_window"`
			MaxModelLen   int    `json:"max_model_len"`
		}
		if err := json.Unmarshal([]byte(item), &m); err != nil || status != 200 {
			t.Fatalf("round %d: status %d, %s, %v", round, status, item, err)
		}
		if age := time.Since(time.Unix(m.Created, 0)); m.ID != testModel || m.Object != "model" || m.OwnedBy == "" || m.ContextWindow != testContext || m.MaxModelLen != testContext || age > time.Minute {
			t.Errorf("round %d: %+v", round, m)
		}
		if got := f.metric(`dynamo_frontend_model_context_length{model="tiny"}`); got != testContext {
			t.Errorf("round %d: context length %v", round, got)
		}
		wholeAnswer(t, f.post("/v1/chat/completions", chatBody(nil)))
		fk.vanish(t)
		patience.Until(t, "the model is gone", func() bool { status, _ := f.get("/v1/models/" + testModel); return status == 503 })
		if resp := f.post("/v1/chat/completions", chatBody(nil)); resp.StatusCode != 503 {
			t.Errorf("round %d: status %d", round, resp.StatusCode)
		}
		patience.Until(t, "the refusal is counted for the model", func() bool {
			return f.metric(`dynamo_frontend_requests_total{endpoint="chat_completions",error_type="unavailable",model="tiny",request_type="unary",status="error"}`) >= 1
		})
		patience.Until(t, "the gauge of the model is gone", func() bool { return f.metric(`dynamo_frontend_model_context_length{model="tiny"}`) == -1 })
	}
}

// A model that was declared or served is missing, not unknown, when workers, topology or
// both are gone: clients try again. Once another one is declared in its place it is
// unknown.
func TestDeclaredModelIsLost(t *testing.T) {
	w := newWorld(t)
	f := w.frontend()
	key := cluster.TopologyKey(cluster.DefaultNamespace)
	declare := func(model string, decode int) {
		t.Helper()
		if _, err := store.PutJSON(t.Context(), w.c.Store, key, cluster.Topology{Model: cluster.ModelSpec{Name: model}, Decode: decode}); err != nil {
			t.Fatal(err)
		}
	}
	ways := []struct {
		path string
		body body
	}{{"/v1/chat/completions", chatBody(nil)}, {"/v1/completions", textBody(nil)}, {"/v1/models/" + testModel, nil}}
	// answers waits until all endpoints say the same of the model.
	answers := func(when string, status int) {
		t.Helper()
		for _, way := range ways {
			patience.Until(t, fmt.Sprintf("%s %s answers %d", when, way.path, status), func() bool {
				var resp *http.Response
				if way.body == nil {
					resp = f.do("GET", way.path, nil)
				} else {
					resp = f.post(way.path, way.body)
				}
				defer resp.Body.Close()
				return resp.StatusCode == status && (status != 503 || resp.Header.Get("Retry-After") != "")
			})
		}
		if _, list := f.get("/v1/models"); strings.Contains(list, testModel) != (status == 200) {
			t.Errorf("%s the list is %s", when, list)
		}
	}
	answers("before anything", 404)
	declare(testModel, 1)
	answers("when it is declared", 503)
	fk := w.fake("worker-1", say("abc"))
	answers("when it is served", 200)
	declare(testModel, 0)
	fk.vanish(t)
	answers("with no decode worker wanted", 503)
	if err := w.c.Store.Delete(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	answers("after the topology is gone", 503)
	fk = w.fake("worker-2", say("abc"))
	answers("when a worker is back", 200)
	fk.vanish(t)
	answers("when all is lost", 503)
	declare("other", 1)
	answers("when another model is declared", 404)
}

// A model that is declared exists, though nobody can serve it yet: clients try again.
func TestDeclaredModelWithoutWorkers(t *testing.T) {
	w := newWorld(t)
	f := w.frontend()
	topology := cluster.Topology{Model: cluster.ModelSpec{Name: testModel}, Decode: 1}
	if _, err := store.PutJSON(t.Context(), w.c.Store, cluster.TopologyKey(cluster.DefaultNamespace), topology); err != nil {
		t.Fatal(err)
	}
	patience.Until(t, "the model is known", func() bool {
		status, _ := f.get("/v1/models/" + testModel)
		return status == http.StatusServiceUnavailable
	})
	resp := f.post("/v1/chat/completions", chatBody(nil))
	if e := failureOf(t, resp); resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" || !strings.Contains(e.Error.Message, testModel) {
		t.Errorf("status %d, headers %v, %+v", resp.StatusCode, resp.Header, e)
	}
	if status, _ := f.get("/v1/models/other"); status != http.StatusNotFound {
		t.Errorf("status %d of a model that nobody declared", status)
	}
	w.fake("worker-1", say("abc"))
	f.waitModel(1)
	wholeAnswer(t, f.post("/v1/chat/completions", chatBody(nil)))
}

// Workers of one model name that disagree on what it is cannot stand in for each
// other: those that came second are left out, and that is said once.
func TestWorkersThatDisagreeAreLeftOut(t *testing.T) {
	for name, change := range map[string]func(*fake){
		"digest":     func(fk *fake) { fk.card.Digest = "sha256:other" },
		"block size": func(fk *fake) { fk.card.BlockSize = 32 },
		"kv dtype":   func(fk *fake) { fk.card.Runtime.KVDType = "int8" },
		"kv bytes":   func(fk *fake) { fk.card.Runtime.KVBlockBytes++ },
		"hash seed":  func(fk *fake) { fk.card.HashSeed = 1 },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			one := w.fake("worker-1", say("one"))
			f := w.frontend().waitModel(1)
			two := w.fake("worker-2", say("two"), change)
			patience.Until(t, "the second worker is left out", func() bool { return w.log.count("is left out") > 0 })
			for range 6 {
				if a := wholeAnswer(t, f.post("/v1/completions", textBody(nil))); a.Choices[0].Text != "one" {
					t.Errorf("got %+v", a.Choices)
				}
			}
			w.fake("worker-3", say("one")) // another change of the cards
			f.waitModel(2)
			if n := w.log.count("is left out"); n != 1 {
				t.Errorf("said %d times", n)
			}
			if len(two.got()) > 0 {
				t.Error("the second worker was used")
			}
			one.vanish(t) // the second is now the oldest, but the third serves what was served
			f.waitModel(1)
			if a := wholeAnswer(t, f.post("/v1/completions", textBody(nil))); a.Choices[0].Text != "one" {
				t.Errorf("after the first left: %+v", a.Choices)
			}
		})
	}
}

// When the first workers of a model are gone, those that were left out are served.
func TestModelIsReplaced(t *testing.T) {
	w := newWorld(t)
	one := w.fake("worker-1", say("one"))
	f := w.frontend().waitModel(1)
	w.fake("worker-2", say("two"), func(fk *fake) { fk.card.Digest, fk.card.ContextLength = "sha256:other", 300 })
	patience.Until(t, "the second worker is left out", func() bool { return w.log.count("is left out") == 1 })
	one.vanish(t)
	patience.Until(t, "the second worker is used", func() bool {
		m := f.registry.find(testModel)
		return m != nil && m.card.Digest == "sha256:other" && m.proc != nil
	})
	f.waitModel(1)
	if a := wholeAnswer(t, f.post("/v1/completions", textBody(nil))); a.Choices[0].Text != "two" {
		t.Errorf("got %+v", a.Choices)
	}
}

// The smallest context of the workers counts: any of them may get a request.
func TestSmallestContextCounts(t *testing.T) {
	w := newWorld(t)
	w.fake("worker-1", say("one"))
	f := w.frontend().waitModel(1)
	small := w.fake("worker-2", say("two"), func(fk *fake) { fk.card.ContextLength = 128 })
	f.waitModel(2)
	if got := f.registry.find(testModel).card.ContextLength; got != 128 {
		t.Errorf("context %d", got)
	}
	if got := f.metric(`dynamo_frontend_model_context_length{model="tiny"}`); got != 128 {
		t.Errorf("gauge %v", got)
	}
	small.vanish(t)
	patience.Until(t, "the large context is back", func() bool { return f.registry.find(testModel).card.ContextLength == testContext })
}

// Files are checked against the card and fetched again until they are right; any
// worker of the model will do.
func TestFilesAreCheckedAndRetried(t *testing.T) {
	w := newWorld(t)
	good := testFiles()
	bad := map[string][]byte{}
	for name, content := range good {
		bad[name] = append([]byte(" "), content...)
	}
	one := w.fake("worker-1", say("one"), func(fk *fake) { fk.files, fk.card.Files = bad, cardFiles(good) })
	f := w.frontend(func(f *Frontend) { f.limits.retry, f.limits.retryMost = time.Millisecond, 10*time.Millisecond })
	patience.Until(t, "the files were fetched several times", func() bool { return one.fetched.Load() >= 3 })
	if w.log.count("do not match the model card") == 0 {
		t.Error("the log does not say why")
	}
	resp := f.post("/v1/completions", textBody(nil))
	if e := failureOf(t, resp); resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(e.Error.Message, "No worker is ready") || resp.Header.Get("Retry-After") == "" {
		t.Errorf("status %d, %+v", resp.StatusCode, e)
	}
	if _, list := f.get("/v1/models"); strings.Contains(list, testModel) {
		t.Errorf("listed: %s", list)
	}
	two := w.fake("worker-2", say("two"), func(fk *fake) { fk.card.Files = one.card.Files })
	f.waitModel(2)
	if two.fetched.Load() == 0 {
		t.Error("the files came from nowhere")
	}
	wholeAnswer(t, f.post("/v1/completions", textBody(nil)))
}

func TestFilesOfAnotherNameAreRefused(t *testing.T) {
	w := newWorld(t)
	f := w.frontend()
	fk := w.fake("worker-1", say("x"))
	f.waitModel(1)
	card := fk.card
	card.Files = card.Files[:1]
	inst := f.files.Instances()[0]
	if _, err := f.registry.fetch(t.Context(), cluster.ModelCard{}, inst); err != nil {
		t.Errorf("no files: %v", err)
	}
	if files, err := f.registry.fetch(t.Context(), card, inst); err != nil || len(files) != 1 {
		t.Errorf("one file: %d, %v", len(files), err)
	}
	f.limits.files = len(fk.files[card.Files[0].Name])
	if _, err := f.registry.fetch(t.Context(), card, inst); err != nil {
		t.Errorf("a file of just the size: %v", err)
	}
	f.limits.files--
	if _, err := f.registry.fetch(t.Context(), card, inst); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("a file that is too large: %v", err)
	}
	card.Files = []cluster.CardFile{{Name: "other", SHA256: "00"}}
	if _, err := f.registry.fetch(t.Context(), card, inst); err == nil || !strings.Contains(err.Error(), "other") {
		t.Errorf("a file that does not exist: %v", err)
	}
}

// A worker that does not answer holds up neither its model's other workers nor
// other models.
func TestSlowFilesHoldUpNobody(t *testing.T) {
	w := newWorld(t)
	f := w.frontend()
	release := make(chan struct{})
	w.fake("worker-1", say("one"), func(fk *fake) { fk.card.DisplayName, fk.card.Digest, fk.wait = "slow", "sha256:slow", release })
	patience.Until(t, "the slow model is known", func() bool { return f.registry.find("slow") != nil })
	w.fake("worker-2", say("two"))
	f.waitModel(1)
	close(release)
	patience.Until(t, "the slow model is served", func() bool { return f.registry.find("slow").proc != nil })
}

// New files of the same model, such as another chat template, replace the old ones
// without a gap once the workers with the old ones are gone.
func TestChangedFilesAreReloaded(t *testing.T) {
	w := newWorld(t)
	one := w.fake("worker-1", say("one"))
	f := w.frontend().waitModel(1)
	created := f.registry.find(testModel).created
	changed := map[string][]byte{"chat_template.jinja": []byte("{% for m in messages %}{{ m.content }}{% endfor %}")}
	for name, content := range testFiles() {
		changed[name] = content
	}
	two := w.fake("worker-2", say("two"), func(fk *fake) { fk.files = changed })
	f.waitModel(2)
	one.vanish(t)
	f.waitModel(1)
	patience.Until(t, "the new template is used", func() bool {
		wholeAnswer(t, f.post("/v1/chat/completions", chatBody(nil)))
		all := two.got()
		return len(all[len(all)-1].TokenIDs) == 2
	})
	if got := f.registry.find(testModel).created; !got.Equal(created) {
		t.Errorf("created %v, before %v", got, created)
	}
}

// A store that is away for a while takes nothing away.
func TestStoreOutage(t *testing.T) {
	w := newWorld(t)
	w.fake("worker-1", say("one"))
	f := w.frontend().waitModel(1)
	patience.Until(t, "the frontend has announced itself", func() bool {
		kvs, _, err := w.c.Store.List(t.Context(), cluster.InstancePrefix(cluster.DefaultNamespace, cluster.ComponentFrontend, ""))
		return err == nil && len(kvs) > 0
	})
	w.c.Store.SetOutage(true)
	for range 3 {
		wholeAnswer(t, f.post("/v1/completions", textBody(nil)))
	}
	w.c.Store.SetOutage(false)
	wholeAnswer(t, f.post("/v1/completions", textBody(nil)))
}

func TestBadCardsAreIgnored(t *testing.T) {
	w := newWorld(t)
	w.fake("worker-1", say("one"))
	f := w.frontend().waitModel(1)
	for key, value := range map[string]string{
		"v1/mdc/dynamo/decode/generate/1": "{", "v1/mdc/dynamo/decode/generate/zz": `{"display_name":"a"}`,
		"v1/mdc/dynamo/decode/generate/2": `{"display_name":"tiny","worker_type":"decode","context_length":5}`,
		"v1/mdc/dynamo/decode/generate/3": `{"worker_type":"decode","context_length":5,"kv_cache_block_size":16}`,
		"v1/mdc/dynamo/prefill/prefill/4": `{"display_name":"only-prefill","worker_type":"prefill"}`,
	} {
		if _, err := w.c.Store.Put(t.Context(), key, []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	patience.Until(t, "the cards were read", func() bool { return w.log.count("does not decode") == 4 })
	wholeAnswer(t, f.post("/v1/completions", textBody(nil)))
	if list := f.registry.list(); len(list) != 1 {
		t.Errorf("%d models", len(list))
	}
}
