package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/cli/clitest"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/config"
)

func TestSet(t *testing.T) {
	w := newWorld(t)
	stored := func(name string) string {
		t.Helper()
		kv, err := w.store.Get(t.Context(), cluster.SettingKey(w.ns, name))
		if err != nil {
			return ""
		}
		return string(kv.Value)
	}
	r := w.ok("set")
	clitest.Has(t, "list", r.stdout, "SETTING\tVALUE\tDEFAULT\tORIGIN\n", "disagg.strategy\t-\tdecode-first\tnode\n", "disagg.remote_prefill_timeout\t-\t30s\tnode\n", "router.policy\t-\tkv\tnode\n")
	if n := strings.Count(r.stdout, "\n"); n != 1+len(config.RuntimeKeys()) {
		t.Errorf("%d lines", n)
	}
	if r := w.ok("set", "disagg.strategy=prefill-first", "--dry-run", "--read-only"); r.stdout != "would change disagg.strategy from not set to prefill-first\n" || stored("disagg.strategy") != "" {
		t.Errorf("dry run: %q, stored %q", r.stdout, stored("disagg.strategy"))
	}
	if r := w.ok("set", "disagg.strategy=prefill-first", "disagg.remote_prefill_timeout=1m30s"); r.stdout != "disagg.strategy is prefill-first.\ndisagg.remote_prefill_timeout is 1m30s.\n" {
		t.Errorf("%q", r.stdout)
	}
	if a, b := stored("disagg.strategy"), stored("disagg.remote_prefill_timeout"); a != `"prefill-first"` || b != `"1m30s"` {
		t.Errorf("stored %s, %s", a, b)
	}
	if r := w.ok("set", "disagg.strategy"); r.stdout != "SETTING\tVALUE\tDEFAULT\tORIGIN\ndisagg.strategy\tprefill-first\tdecode-first\tcluster\n" {
		t.Errorf("one setting: %q", r.stdout)
	}
	if r := w.ok("set", "disagg.strategy=prefill-first", "--unset", "disagg.remote_prefill_timeout", "--dry-run"); r.stdout != "would leave disagg.strategy as it is: prefill-first\nwould change disagg.remote_prefill_timeout from 1m30s to not set\n" {
		t.Errorf("dry run of both: %q", r.stdout)
	}
	r = w.ok("set", "disagg.max_prefill_queue_depth=7", "disagg.background_prefill=false")
	clitest.Has(t, "a former name", r.stderr, "note: disagg.background_prefill is called disagg.overlap_kv_transfer now")
	clitest.Has(t, "a former name", w.ok("set", "disagg.background_prefill").stdout, "disagg.overlap_kv_transfer\tfalse\ttrue\tcluster\n")
	clitest.Has(t, "a former value", w.ok("set", "disagg.strategy=router", "--dry-run").stderr, "note: the value router of disagg.strategy is called prefill-first now")
	if a, b := stored("disagg.max_prefill_queue_depth"), stored("disagg.overlap_kv_transfer"); a != "7" || b != "false" {
		t.Errorf("stored %s, %s", a, b)
	}
	var all []struct {
		Setting, Help  string
		Value, Default any
	}
	if err := json.Unmarshal([]byte(w.ok("set", "-o", "json").stdout), &all); err != nil {
		t.Fatal(err)
	}
	values := map[string]any{}
	for _, s := range all {
		values[s.Setting] = s.Value
		if s.Help == "" || s.Default == nil {
			t.Errorf("%+v", s)
		}
	}
	if values["disagg.strategy"] != "prefill-first" || values["disagg.max_prefill_queue_depth"] != 7.0 || values["disagg.overlap_kv_transfer"] != false || values["router.policy"] != nil {
		t.Errorf("%v", values)
	}
	r = w.ok("set", "--unset", "disagg.strategy", "-o", "json")
	clitest.Has(t, "unset", r.stdout, `"setting": "disagg.strategy"`, `"value": null`, `"default": "decode-first"`)
	if stored("disagg.strategy") != "" {
		t.Error("it is still set")
	}
	w.ok("set", "--unset", "disagg.strategy") // once more is no mistake
	// A value that somebody else wrote and nobody can read is shown as what it is.
	if _, err := w.store.Put(t.Context(), cluster.SettingKey(w.ns, "router.policy"), []byte(`"best"`)); err != nil {
		t.Fatal(err)
	}
	clitest.Has(t, "unreadable", w.ok("set").stdout, "router.policy\tignored: router.policy: \"best\" is not one of round-robin, least-loaded, kv, power-of-two, random, direct\tkv\tnode\n")
	if got := w.ok("set", "-q").stdout; !strings.Contains(got, "disagg.strategy\n") {
		t.Errorf("names: %q", got)
	}
}

// Where the cluster sets nothing, the list has what counts on the nodes, and where it is from.
func TestSetShowsEffectiveValues(t *testing.T) {
	w := newWorld(t)
	has := func(what, line string) {
		t.Helper()
		clitest.Has(t, what, w.ok("set").stdout, line)
	}
	w.agent(fakeConfig{Name: "node-1", Settings: map[string]cluster.NodeSetting{}})
	has("a default", "router.policy\tkv\tkv\tdefault\n")
	w.agent(fakeConfig{Name: "node-2", Settings: map[string]cluster.NodeSetting{
		"router.policy": {Value: "random", Origin: "DYN_ROUTER_MODE"}, "disagg.strategy": {Value: "decode-first", Origin: "--disagg-strategy"},
	}})
	has("nodes that differ", "router.policy\tkv on node-1; random on node-2\tkv\tnodes differ\n")
	has("the default by a flag", "disagg.strategy\tdecode-first\tdecode-first\t--disagg-strategy on node-2\n")
	w.agent(fakeConfig{Name: "node-3"}) // of an earlier release
	has("a node that does not tell", "router.policy\tkv on node-1; random on node-2\tkv\tnodes differ\n")
	var all []struct {
		Setting, Source  string
		Value, Effective any
		ByNode           map[string]any `json:"by_node"`
	}
	if err := json.Unmarshal([]byte(w.ok("set", "router.policy", "disagg.remote_prefill_timeout", "-o", "json").stdout), &all); err != nil {
		t.Fatal(err)
	}
	if p := all[1]; p.Effective != nil || p.Value != nil || p.ByNode["node-1"] != "kv" || p.ByNode["node-2"] != "random" || len(p.ByNode) != 2 {
		t.Errorf("got %+v", all)
	}
	if p := all[0]; p.Effective != "30s" || p.Source != "default" || p.ByNode != nil {
		t.Errorf("got %+v", all)
	}
	w.ok("set", "router.policy=direct")
	has("set in the cluster", "router.policy\tdirect\tkv\tcluster\n")
}

func TestSetRefuses(t *testing.T) {
	w := newWorld(t)
	for _, tc := range []struct {
		args []string
		text string
	}{
		{[]string{"disagg.strategy", "router.policy=round-robin"}, `"disagg.strategy" is not <setting>=<value>`},
		{[]string{"disagg.stratgy"}, `no run-time setting "disagg.stratgy"; did you mean disagg.strategy?`},
		{[]string{"disagg.stratgy=router"}, `no run-time setting "disagg.stratgy"; did you mean disagg.strategy?`},
		{[]string{"disagg.strategy=fast"}, `disagg.strategy: "fast" is not one of decode-first, prefill-first`},
		{[]string{"frontend.port=1"}, "frontend.port does not change at run time"},
		{[]string{"disagg.max_local_prefill_tokens=many"}, `"many" is not a whole number from 0 to 100000000`},
		{[]string{"disagg.remote_prefill_timeout=0"}, "0 would never wait"},
		{[]string{"disagg.remote_prefill_timeout=30"}, "has no unit"},
		{[]string{"disagg.strategy=decode-first", "disagg.strategy=prefill-first"}, "disagg.strategy is named twice"},
		{[]string{"disagg.strategy=decode-first", "--unset", "disagg.strategy"}, "disagg.strategy is named twice"},
		{[]string{"--unset", "x"}, `no run-time setting "x"`},
		{[]string{"router.policy=round-robin", "disagg.strategy=fast"}, "is not one of"},
	} {
		r := w.run(append([]string{"set"}, tc.args...)...)
		if r.code != exit.Usage || !strings.Contains(r.stderr, tc.text) {
			t.Errorf("%q: exit %d, %s", tc.args, r.code, r.stderr)
		}
	}
	if kvs, _, err := w.store.List(t.Context(), cluster.SettingPrefix(w.ns)); err != nil || len(kvs) > 0 {
		t.Errorf("changed all the same: %v %v", kvs, err)
	}
	if r := w.run("set", "disagg.strategy=prefill-first", "--read-only"); r.code == 0 || !strings.Contains(r.stderr, "read-only is set") {
		t.Errorf("read-only: %+v", r)
	}
	w.ok("set", "--read-only")
}
