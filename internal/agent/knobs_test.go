package agent

import (
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/router"
	"github.com/dynctl/dynctl/internal/worker"
)

func TestKnobs(t *testing.T) {
	n := startTestNode(t)
	cfg := n.cfg.Disagg
	base := worker.Knobs{
		Prefill:       router.PrefillLimits{MaxLocalTokens: cfg.MaxLocalPrefillTokens, MaxQueueDepth: cfg.MaxPrefillQueueDepth},
		RemoteTimeout: cfg.RemotePrefillTimeout,
	}
	if got := n.knobs.current(); got != base {
		t.Errorf("nothing set: %+v, want the node's configuration %+v", got, base)
	}
	set := func(name, value string) {
		t.Helper()
		if _, err := n.mem.Put(t.Context(), cluster.KnobKey(n.cfg.Namespace, name), []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	becomes := func(what string, want worker.Knobs) {
		t.Helper()
		eventually(t, what, func() bool { return n.knobs.current() == want })
	}
	set(knobMaxLocal, "128")
	set(knobMaxQueue, "7")
	set(knobTimeout, `"1m30s"`)
	now := worker.Knobs{Prefill: router.PrefillLimits{MaxLocalTokens: 128, MaxQueueDepth: 7}, RemoteTimeout: 90 * time.Second}
	becomes("what is set is in force", now)

	// A value that makes no sense counts as not set; zero tokens do make sense.
	marker := 0
	for _, bad := range []struct{ name, value string }{
		{knobMaxLocal, "-1"}, {knobMaxLocal, `"128"`}, {knobMaxLocal, "1.5"}, {knobMaxLocal, "{"}, {knobMaxLocal, ""}, {knobMaxLocal, "1e30"},
	} {
		set(bad.name, bad.value)
		marker++
		set(knobMaxQueue, string(rune('0'+marker))) // seen after the bad one
		want := now
		want.Prefill.MaxLocalTokens, want.Prefill.MaxQueueDepth = base.Prefill.MaxLocalTokens, marker
		becomes(bad.name+" "+bad.value+" is ignored", want)
	}
	set(knobMaxLocal, "0")
	for _, bad := range []string{`"0s"`, `"-5s"`, `"soon"`, "30", "null"} {
		set(knobTimeout, bad)
		marker++
		set(knobMaxQueue, string(rune('0'+marker%10)))
		want := worker.Knobs{Prefill: router.PrefillLimits{MaxLocalTokens: 0, MaxQueueDepth: marker % 10}, RemoteTimeout: base.RemoteTimeout}
		becomes("timeout "+bad+" is ignored", want)
	}
	// Deleted: the configuration again.
	if _, err := n.mem.DeletePrefix(t.Context(), cluster.KnobPrefix(n.cfg.Namespace)); err != nil {
		t.Fatal(err)
	}
	becomes("back to the configuration", base)
}
