package cli

import (
	"context"
	"encoding/json"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/dynctl/dynctl/internal/cli/clitest"
	"github.com/dynctl/dynctl/internal/cli/drain"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cluster"
)

func held() *atomic.Bool {
	b := &atomic.Bool{}
	b.Store(true)
	return b
}

func TestDrainAndResume(t *testing.T) {
	w := newWorld(t)
	last := newPacer(t, "worker-3 finish-sequences 1/3\n", func(st cluster.WorkerStatus) bool {
		return st.Name == "worker-3" && st.Drain != nil && st.Drain.Step == cluster.DrainSequences && st.Drain.Left == 1
	})
	w.agent(fakeConfig{Sequences: 3, Pace: last.pace})
	w.up(1, 2)
	r := w.with(t.Context(), options{stderr: last}, "drain", "worker-3")
	if !regexp.MustCompile(`^worker-3 drained in \d+\.\ds: 3 finished, 0 moved, 0 cancelled\. safe to stop\.\n$`).MatchString(r.stdout) {
		t.Errorf("answer %q", r.stdout)
	}
	clitest.Has(t, "progress", r.stderr, "worker-3 stop-new-requests done: 2 of 2 routers acknowledged\n", last.want, "worker-3 leave-cluster done\n")
	if strings.Contains(r.stderr, "only decode worker") {
		t.Errorf("worker-2 serves:\n%s", r.stderr)
	}
	if r := w.ok("drain", "worker-3"); r.stdout != "worker-3 is drained already. safe to stop.\n" || r.stderr != "" {
		t.Errorf("again: %+v", r)
	}
	clitest.Has(t, "the last decode worker", w.ok("drain", "worker-2").stderr, "note: worker-2 is the only decode worker that serves: new requests wait up to 10s for another one")

	r = w.ok("resume", "worker-2", "worker-3")
	if !regexp.MustCompile(`^worker-2 serves again after \d+\.\ds\.\nworker-3 serves again after \d+\.\ds\.\n$`).MatchString(r.stdout) {
		t.Errorf("resume %q\n%s", r.stdout, r.stderr)
	}
	if r := w.ok("resume", "worker-3"); r.stdout != "worker-3 serves already.\n" {
		t.Errorf("resume again: %q", r.stdout)
	}
	// A drain after a resume is a drain of its own.
	clitest.Has(t, "drained again", w.ok("drain", "worker-3").stdout, "worker-3 drained in ", "3 finished")
}

func TestDrainOfSeveral(t *testing.T) {
	w := newWorld(t)
	w.agent(fakeConfig{Sequences: 1})
	w.up(1, 2)
	r := w.run("drain", "worker-9", "worker-3")
	if r.code != exit.Partly {
		t.Errorf("exit %d, want %d", r.code, exit.Partly)
	}
	clitest.Has(t, "stderr", r.stderr, "dynctl: cannot drain worker-9: no such worker in cluster lab\n  live workers: worker-1, worker-2, worker-3\n  try: dynctl ps\n")
	clitest.Has(t, "stdout", r.stdout, "worker-3 drained in ")
	if r := w.run("drain", "worker-8", "worker-9"); r.code != exit.Failed {
		t.Errorf("nobody exists: exit %d", r.code)
	}
	if r := w.run("drain", "wroker-1"); r.code != exit.Failed || !strings.Contains(r.stderr, "names look like worker-7") {
		t.Errorf("%+v", r)
	}
	if r := w.ok("drain", "worker-2", "-q"); r.stdout != "worker-2\n" || r.stderr != "" {
		t.Errorf("-q: %+v", r)
	}
	if r := w.run("resume", "worker-2", "worker-9"); r.code != exit.Partly {
		t.Errorf("resume: exit %d", r.code)
	}
}

func TestDrainJSON(t *testing.T) {
	w := newWorld(t)
	w.agent(fakeConfig{Sequences: 2})
	w.up(0, 1)
	r := w.ok("drain", "worker-1", "-o", "json", "--progress", "json")
	var all []drain.Result
	if err := json.Unmarshal([]byte(r.stdout), &all); err != nil || len(all) != 1 {
		t.Fatalf("%v:\n%s", err, r.stdout)
	}
	got := all[0]
	if !got.Safe || got.State != cluster.StateDrained || got.Finished == nil || *got.Finished != 2 || *got.DurationMS < 1 {
		t.Errorf("got %s", r.stdout)
	}
	for line := range strings.Lines(r.stderr) {
		if !strings.HasPrefix(line, "{") && !strings.HasPrefix(line, "dynctl: note:") {
			t.Errorf("progress line %q", line)
		}
	}
}

func TestDrainMissesItsDeadline(t *testing.T) {
	w := newWorld(t)
	hold := held()
	w.agent(fakeConfig{Sequences: 3, Hold: hold})
	w.up(0, 2)
	r := w.run("drain", "worker-2", "--deadline", "3s") // enough for its steps until there
	if r.code != exit.Deadline || r.stdout != "" {
		t.Errorf("exit %d, stdout %q", r.code, r.stdout)
	}
	clitest.Matches(t, "stderr", r.stderr, `dynctl: worker-2 did not drain in \d+\.\ds: 3 of 3 sequences left\n`)
	clitest.Has(t, "stderr", r.stderr,
		"  it stays draining and takes no new requests\n", "    r-1  1,204 tok out  2:08  not moved: no room elsewhere\n",
		"  try: dynctl drain worker-2 --deadline 10m   to wait on\n", "   or: dynctl resume worker-2   to take it back\n", "   or: dynctl drain worker-2 --deadline 0 --yes")
	clitest.Has(t, "it goes on", w.ok("ps").stdout, "worker-2\tdecode\tcpu0 2c\tdraining")

	// Taken back, it serves at once.
	clitest.Has(t, "resume", w.ok("resume", "worker-2").stdout, "worker-2 serves again")

	// Forced: not without a yes.
	r = w.run("drain", "worker-2", "--deadline", "0")
	if r.code != exit.Usage {
		t.Errorf("exit %d", r.code)
	}
	clitest.Has(t, "stderr", r.stderr, "dynctl: cannot drain worker-2: needs --yes when not interactive\n  Cut off the requests of worker-2 (3 sequences)? Other workers continue them.\n")
	r = w.with(t.Context(), options{tty: true, input: "no\n"}, "drain", "worker-2", "--deadline", "0")
	if r.code != exit.Failed || !strings.Contains(r.stderr, "continue them. [y/N] dynctl: cannot drain worker-2: not confirmed, nothing was changed") {
		t.Errorf("declined: %+v", r)
	}
	r = w.with(t.Context(), options{tty: true, input: "y\n"}, "drain", "worker-2", "--deadline", "0")
	if r.code != 0 {
		t.Errorf("confirmed: %+v", r)
	}
	clitest.Has(t, "stdout", r.stdout, "0 finished, 0 moved, 0 cancelled, 3 cut off; other workers compute what was cut off again. safe to stop.")
}

func TestDrainIsInterrupted(t *testing.T) {
	w := newWorld(t)
	hold := held()
	w.agent(fakeConfig{Sequences: 1, Hold: hold})
	w.up(0, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := w.with(ctx, options{stderr: &watchWriter{want: "finish-sequences", then: cancel}}, "drain", "worker-1")
	if r.code != exit.Interrupted {
		t.Errorf("exit %d", r.code)
	}
	clitest.Has(t, "stderr", r.stderr, "dynctl: stopped watching: worker-1 goes on draining until ", "  try: dynctl resume worker-1   to take it back\n")
	hold.Store(false)
	clitest.Eventually(t, "the drain goes on", func() bool { return strings.Contains(w.ok("ps").stdout, "drained") })
}

func TestDrainIsTakenBackBySomebodyElse(t *testing.T) {
	w := newWorld(t)
	w.agent(fakeConfig{Sequences: 1, Hold: held()})
	w.up(0, 1)
	seen := make(chan struct{})
	got := make(chan result, 1)
	go func() {
		got <- w.with(t.Context(), options{stderr: &watchWriter{want: "finish-sequences", then: func() { close(seen) }}}, "drain", "worker-1")
	}()
	<-seen
	w.ok("resume", "worker-1")
	if r := <-got; r.code != exit.Failed || !strings.Contains(r.stderr, "worker-1 did not drain: it was resumed meanwhile") {
		t.Errorf("%+v", r)
	}
}

func TestNoWait(t *testing.T) {
	w := newWorld(t)
	w.agent(fakeConfig{Sequences: 1, Hold: held()})
	w.up(0, 1)
	r := w.run("drain", "worker-1", "--no-wait")
	if r.code != exit.Accepted || !strings.HasPrefix(r.stdout, "worker-1 drains until ") {
		t.Errorf("%+v", r)
	}
	r = w.run("resume", "worker-1", "--no-wait")
	if r.code != exit.Accepted || r.stdout != "worker-1 resumes.\n" {
		t.Errorf("%+v", r)
	}
	r = w.run("scale", "--decode", "2", "--no-wait", "-o", "json")
	if r.code != exit.Accepted || !strings.Contains(r.stdout, `"converged": false`) {
		t.Errorf("%+v", r)
	}
}

// A worker that is placed nowhere has nothing to drain, which is not the same as safe.
func TestDrainOfAnUnplacedWorker(t *testing.T) {
	w := newWorld(t)
	w.agent(fakeConfig{})
	if r := w.run("up", "--prefill", "0", "--device", "gpu", "--no-wait"); r.code != exit.Accepted {
		t.Fatalf("%+v", r)
	}
	clitest.Eventually(t, "worker-1 is unplaced", func() bool { return strings.Contains(w.ok("ps").stderr, "no node has a device gpu") })
	r := w.ok("drain", "worker-1")
	if strings.Contains(r.stdout, "safe") || !strings.Contains(r.stdout, "worker-1 runs on no node") {
		t.Errorf("%q", r.stdout)
	}
}
