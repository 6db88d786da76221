package cli

import (
	"context"
	"regexp"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/cli/clitest"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cluster"
)

func TestScale(t *testing.T) {
	w := newWorld(t)
	drains := newPacer(t, "worker-1 prefill draining 1 of 1 sequence left", func(st cluster.WorkerStatus) bool {
		return st.Name == "worker-1" && st.Drain != nil && st.Drain.Left == 1
	})
	a := w.agent(fakeConfig{Sequences: 1, Pace: drains.pace})
	if r := w.run("scale", "--decode", "2"); r.code != exit.Failed || !strings.Contains(r.stderr, "cannot scale: nothing was ever declared in cluster lab\n  try: dynctl up") {
		t.Errorf("before up: %+v", r)
	}
	w.up(1, 1)
	r := w.ok("scale", "--decode", "3", "--dry-run")
	if r.stdout != "would change lab from 1 prefill + 1 decode worker to 1 prefill + 3 decode workers\n" {
		t.Errorf("dry run: %q", r.stdout)
	}
	r = w.ok("scale", "--decode", "3")
	if !regexp.MustCompile(`^lab has 1 prefill \+ 3 decode workers after \d+\.\ds\.\n$`).MatchString(r.stdout) {
		t.Errorf("up: %q", r.stdout)
	}
	r = w.with(t.Context(), options{stderr: drains}, "scale", "--prefill", "0", "--decode", "1")
	clitest.Has(t, "down", r.stderr, drains.want, "worker-1 prefill removed", "worker-4 decode removed")
	if got := w.ok("ps", "-q").stdout; got != "worker-2\n" {
		t.Errorf("left: %q", got)
	}
	if r := w.ok("scale", "--decode", "1"); !strings.HasPrefix(r.stdout, "lab has 1 decode worker after") {
		t.Errorf("nothing to do: %+v", r)
	}
	if r := w.run("scale", "--prefill", "1", "--decode", "0"); r.code != exit.Usage || !strings.Contains(r.stderr, "prefill workers need at least one decode worker") {
		t.Errorf("no decode: %+v", r)
	}
	// Without agents nothing happens; the wait ends at its deadline.
	a.close()
	if r := w.run("scale", "--decode", "2", "--timeout", "200ms"); r.code != exit.Deadline || !strings.Contains(r.stderr, "lab is not as declared after 0.2s: it waits for ") {
		t.Errorf("no agents: %+v", r)
	}
}

func TestScaleIsInterrupted(t *testing.T) {
	w := newWorld(t)
	hold := held()
	w.agent(fakeConfig{Sequences: 1, Hold: hold})
	w.up(0, 2)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := w.with(ctx, options{stderr: &watchWriter{want: "draining", then: cancel}}, "scale", "--decode", "1")
	if r.code != exit.Interrupted || !strings.Contains(r.stderr, "stopped watching: lab goes on scaling") {
		t.Errorf("%+v", r)
	}
	hold.Store(false)
}

func TestScaleEndsWithAWorkerThatFails(t *testing.T) {
	w := newWorld(t)
	w.agent(fakeConfig{Fail: map[string]string{"worker-2": "disk on fire"}})
	w.up(0, 1)
	r := w.run("scale", "--decode", "2")
	if r.code != exit.Failed {
		t.Errorf("exit %d", r.code)
	}
	// A slow machine sees the second failure only when there was a third.
	clitest.Has(t, "stderr", regexp.MustCompile(`failed [2-9] times`).ReplaceAllString(r.stderr, "failed N times"),
		"dynctl: worker-2 did not start: disk on fire\n  it failed N times; its agent goes on trying\n  try: dynctl rollback\n   or: dynctl logs worker-2\n")
}
