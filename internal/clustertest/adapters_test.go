package clustertest

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/external/externaltest"
)

// adapter waits until an adapter is served, or until it is not.
func (c *Cluster) adapter(name string, served bool) {
	c.t.Helper()
	c.WaitView(fmt.Sprintf("the adapter %s is served: %t", name, served), func(client.View) bool {
		var list struct{ Data []struct{ ID, Parent string } }
		if c.getJSON("/v1/models", &list) != nil {
			return false
		}
		there := slices.ContainsFunc(list.Data, func(m struct{ ID, Parent string }) bool { return m.ID == name && m.Parent == c.Model })
		return there == served
	})
}

// Both legs of a request for an adapter go to servers that have it, and the text is the adapter's.
func TestAdaptersOfServers(t *testing.T) {
	c := Start(t, Options{Model: builtinFolder(t), Decode: 1})
	fabric := externaltest.NewFabric()
	options := externaltest.Options{Backend: cluster.BackendVLLM, Connector: "nixl", Fabric: fabric}
	var servers []*simulator
	var doubles []*externaltest.Double
	for _, role := range []cluster.Role{cluster.RolePrefill, cluster.RoleDecode} {
		for _, loras := range [][]string{{"tuned"}, nil} {
			options.Role, options.Loras = role, loras
			d, s := attachedDouble(t, c, options)
			doubles, servers = append(doubles, d), append(servers, s)
		}
	}
	c.attach(servers...)
	c.WaitReady(2, 3)
	c.adapter("tuned", true)
	body := Body{"prompt": strings.Repeat("word ", 400), "max_tokens": 20, "temperature": 0, "ignore_eos": true}
	texts := map[string]string{}
	for range 3 {
		a, err := c.Ask(t.Context(), "tuned", body)
		if err != nil || a.Usage.CompletionTokens != 20 {
			t.Fatalf("%+v, %v", a, err)
		}
		texts[a.Text] = "tuned"
	}
	if fabric.Moved() != 3 || len(texts) != 1 || len(doubles[0].Seen()) != 3 || len(doubles[2].Seen()) != 3 || len(doubles[1].Seen())+len(doubles[3].Seen()) != 0 {
		t.Errorf("KV moved %d times, %d texts; prefills %d and %d, decodes %d and %d", fabric.Moved(), len(texts),
			len(doubles[0].Seen()), len(doubles[1].Seen()), len(doubles[2].Seen()), len(doubles[3].Seen()))
	}
	for _, s := range append(doubles[0].Seen(), doubles[2].Seen()...) {
		if !strings.Contains(string(s.Body), `"model":"tuned"`) {
			t.Errorf("the server got %s", s.Body)
		}
	}
	if _, err := c.Ask(t.Context(), "sql", body); err == nil || !strings.Contains(err.Error(), "status 404") {
		t.Errorf("an unknown adapter: %v", err)
	}
	if wrong := fabric.Wrong(); len(wrong) > 0 {
		t.Errorf("%q", wrong)
	}
}

// A server of vLLM's kind that nobody here wrote has an adapter, and gets another one while it runs.
// The blocks of one prompt with and without an adapter are told apart.
func TestAdaptersOfASimulator(t *testing.T) {
	c := Start(t, Options{Model: builtinFolder(t), Config: func(cfg *config.Dynamod) { cfg.Router.Policy = "kv" }})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := ln.Addr().(*net.TCPAddr).Port
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	s := attachSimulator(t, c, cluster.RoleDecode, "--lora-modules", `{"name":"tuned"}`, "--max-loras", "2",
		"--enable-kvcache", "--block-size", "16", "--event-batch-size", "1", "--zmq-endpoint", fmt.Sprintf("tcp://127.0.0.1:%d", port))
	s.spec.Engine.Server.Events = fmt.Sprintf("tcp://*:%d", port)
	plain := attachSimulator(t, c, cluster.RoleDecode)
	s.Kill() // it connects when it starts, and not again
	c.attach(s, plain)
	c.WaitView("the node waits for the server", func(v client.View) bool {
		return c.workerOf(s) != "" && v.Status[c.workerOf(s)].State == cluster.StateLoading
	})
	s.start(t)
	c.WaitReady(0, 2)
	c.adapter("tuned", true)
	c.hears(s)
	blocks := func() int {
		w, _ := c.index(s, "", "")
		return w.Device
	}
	body := Body{"prompt": strings.Repeat("words ", 100), "max_tokens": 4, "nvext": Body{"decode_worker_id": c.workerOf(s)}}
	first := blocks()
	before := first
	for _, model := range []string{c.Model, "tuned"} {
		for range 2 { // the second time, nothing new
			if _, err := c.Ask(t.Context(), model, body); err != nil {
				t.Fatal(err)
			}
		}
		c.WaitView("the frontend knows the blocks of "+model, func(client.View) bool { return blocks() > before })
		before = blocks()
	}
	both := before - first
	if both%2 != 0 {
		t.Errorf("%d blocks of one prompt, with and without an adapter", both)
	}
	overlap := func(model string) int {
		w, _ := c.index(s, model, strings.Repeat("words ", 100))
		return w.Overlap
	}
	if a, b := overlap(c.Model), overlap("tuned"); a != both/2 || b != a {
		t.Errorf("%d and %d blocks of the prompt are found, of %d", a, b, both)
	}
	order := func(verb, name string) {
		t.Helper()
		for try := 1; ; try++ {
			resp, err := http.Post(s.URL+"/v1/"+verb+"_lora_adapter", "application/json", bytes.NewReader([]byte(fmt.Sprintf(`{"lora_name":%q,"lora_path":"/x"}`, name))))
			if err != nil {
				t.Fatal(err)
			}
			said, _ := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			switch {
			case resp.StatusCode == http.StatusOK:
				return
			case resp.StatusCode == http.StatusInternalServerError && try < 5: // of a stream that its client left: the simulator's fault
			default:
				t.Fatalf("%s: %s: %s", verb, resp.Status, said)
			}
		}
	}
	order("load", "sql")
	c.adapter("sql", true)
	if _, err := c.Ask(t.Context(), "sql", Body{"prompt": "short", "max_tokens": 4}); err != nil {
		t.Error(err)
	}
	c.WaitView("the worker tells both adapters", func(v client.View) bool {
		st := v.Status[c.workerOf(s)].ServerStatus
		return st != nil && strings.Join(st.Adapters, " ") == "sql tuned"
	})
	order("unload", "tuned")
	if _, err := c.Ask(t.Context(), "tuned", body); err == nil {
		t.Error("an adapter that was unloaded answers")
	}
	c.adapter("tuned", false)
	if _, err := c.Ask(t.Context(), "tuned", body); err == nil || !strings.Contains(err.Error(), "status 404") {
		t.Errorf("after it was unloaded: %v", err)
	}
	if _, err := c.Ask(t.Context(), c.Model, body); err != nil {
		t.Error(err)
	}
}
