package cli

import "testing"
import "fmt"

func TestDbg(t *testing.T) {
	w := newWorld(t)
	w.agent(fakeConfig{Sequences: 3, Load: 500e6, Logs: map[string]string{"": "agent\n", "worker-1": "a\nb\n"}})
	p := func(r result) { fmt.Printf("--- exit %d\n%s--- stderr\n%s", r.code, r.stdout, r.stderr) }
	p(w.run("up", "--prefill", "1", "--decode", "2"))
	p(w.with(t.Context(), options{tty: true}, "ps"))
	p(w.with(t.Context(), options{tty: true}, "ps", "--nodes"))
	p(w.with(t.Context(), options{tty: true}, "ps", "-o", "wide"))
	p(w.with(t.Context(), options{tty: true, width: 60}, "ps", "-o", "wide"))
	p(w.run("drain", "worker-2"))
	p(w.run("drain", "worker-2", "worker-9"))
	p(w.run("resume", "worker-2"))
	p(w.run("scale", "--decode", "4", "--prefill", "0"))
	p(w.run("logs", "worker-1"))
	p(w.run("top", "--interval", "200ms"))
	p(w.run("up", "--model", "/tmp"))
	p(w.run("up", "--served-name", "qwen"))
	p(w.run("up", "--dry-run", "--decode", "2"))
	p(w.run("down", "--yes"))
	p(w.run("ps"))
}
