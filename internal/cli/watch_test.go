package cli

import (
	"context"
	"encoding/json"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cli/clitest"
	"github.com/dynctl/dynctl/internal/cli/exit"
)

func TestPsWatch(t *testing.T) {
	w := newWorld(t)
	w.agent(fakeConfig{Sequences: 1, Hold: held()})
	w.up(0, 1)
	var wg sync.WaitGroup
	defer wg.Wait()
	// watch runs a watch until it shows what is wanted; meanwhile, once the first
	// worker is shown, another command runs.
	watch := func(o options, meanwhile []string, want string, args ...string) result {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		first := &watchWriter{want: "worker-1", then: func() {
			if meanwhile != nil {
				wg.Go(func() { w.run(meanwhile...) })
			}
		}}
		o.stdout = io.MultiWriter(first, &watchWriter{want: want, then: cancel})
		r := w.with(ctx, o, append([]string{"ps", "-w"}, args...)...)
		if r.code != exit.Interrupted || !strings.Contains(r.stdout, want) {
			t.Errorf("ps -w %v: exit %d, %s%s", args, r.code, r.stdout, r.stderr)
		}
		return r
	}
	r := watch(options{}, []string{"scale", "--decode", "2", "--no-wait"}, "worker-2\tdecode\tcpu0 2c\tready")
	if n := strings.Count(r.stdout, "NAME"); n != 1 {
		t.Errorf("%d headers:\n%s", n, r.stdout)
	}
	if n := strings.Count(r.stdout, "worker-1"); n != 1 {
		t.Errorf("an unchanged row stands there %d times:\n%s", n, r.stdout)
	}
	r = watch(options{tty: true}, []string{"drain", "worker-2", "--no-wait"}, "◐ draining")
	clitest.Has(t, "redraw", r.stdout, "\x1b[3A\x1b[J")
	r = watch(options{}, nil, `"name":"worker-1"`, "-o", "json")
	for line := range strings.Lines(r.stdout) {
		if !json.Valid([]byte(line)) {
			t.Errorf("not a document of one line: %s", line)
		}
	}
	watch(options{}, nil, "---\n- name: worker-1", "-o", "yaml")
	watch(options{}, nil, "worker-2\n", "-q")
	watch(options{}, nil, "node-1\t", "--nodes")
}
