package cli

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cli/clitest"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cluster"
)

func TestGetTrace(t *testing.T) {
	w := newWorld(t)
	q := func(s, output int, model string, blocks ...uint64) cluster.RecordedRequest {
		return cluster.RecordedRequest{At: clitest.Noon.Add(time.Duration(s) * time.Second), Model: model, Prompt: 512 * len(blocks), Output: output, Blocks: blocks}
	}
	load := &cluster.RecordedLoad{Frontend: "node-1", Off: true}
	w.agent(fakeConfig{Recorded: load})
	w.up(1, 1)
	r := w.run("get", "trace")
	if r.code != exit.Failed || r.stdout != "" {
		t.Errorf("%+v", r)
	}
	clitest.Has(t, "turned off", r.stderr, "frontend.record_load is false", "try: dynctl set frontend.record_load=true")
	load.Off = false
	r = w.run("get", "trace")
	clitest.Has(t, "without requests", r.stderr, "no frontend remembers a request that had an answer", "try: dynctl bench")
	load.Requests = []cluster.RecordedRequest{q(3, 7, "m", 5, 6), q(1, 2, "m", 5), q(2, 0, "m", 5), q(2, 1, "other", 8)}
	const whole = `{"timestamp":0,"input_length":512,"output_length":2,"hash_ids":[0]}
{"timestamp":1000,"input_length":512,"output_length":1,"hash_ids":[1]}
{"timestamp":2000,"input_length":1024,"output_length":7,"hash_ids":[0,2]}
`
	r = w.ok("get", "trace", "--since", "10m")
	if r.stdout != whole {
		t.Errorf("%s", r.stdout)
	}
	clitest.Has(t, "notes", r.stderr, "3 requests in 2s, from node-1\n", "1 request without an answer left out\n", "of several models: m, other; --model chooses one\n")
	file := filepath.Join(t.TempDir(), "t.jsonl")
	r = w.ok("get", "trace", "--save", file, "--model", "other", "-q")
	if text, err := os.ReadFile(file); err != nil || string(text) != "{\"timestamp\":0,\"input_length\":512,\"output_length\":1,\"hash_ids\":[0]}\n" || r.stdout != "" || r.stderr != "" {
		t.Errorf("%s %v %+v", text, err, r)
	}
	r = w.run("get", "trace", "--model", "none")
	clitest.Has(t, "another model", r.stderr, `an answer of the model "none"`, "try: dynctl get trace --model m")
	if r := w.run("get", "trace", "--since", "2h"); r.code != exit.Usage {
		t.Errorf("%+v", r)
	}
}
