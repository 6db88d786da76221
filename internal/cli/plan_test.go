package cli

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cli/clitest"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/profile"
	"github.com/dynctl/dynctl/internal/store"
)

// A plan takes from the running cluster what was not given.
func TestPlan(t *testing.T) {
	dir := playDynlab(t, `for a in "$@"; do case $a in --*=/*) f=${a#*=}; echo "${a%%=*} ${f##*/}:"; cat "$f";; *) echo "$a";; esac; done; exit 1`)
	r := labbed(t.Context(), dir, nil, "plan", "--ttft", "300ms", "--itl", "40ms", "--trace", "t.jsonl", "--profile", "p.json", "--save", "n.yaml", "-o", "json")
	if r.code != exit.Failed || r.stdout != "size\n--ttft=300ms\n--itl=40ms\n--trace=t.jsonl\n--profile=p.json\n--save=n.yaml\n--json\n" {
		t.Errorf("%+v", r)
	}
	if r := labbed(t.Context(), dir, nil, "plan", "--ttft", "300ms"); r.code != exit.Usage {
		t.Errorf("without a target: %+v", r)
	}
	w := newWorld(t)
	load := &cluster.RecordedLoad{Frontend: "node-1"}
	w.agent(fakeConfig{Recorded: load})
	w.up(1, 2)
	env := options{env: []string{"PATH=" + dir + ":/usr/bin:/bin"}}
	r = w.with(t.Context(), env, "plan", "--ttft", "1s", "--itl", "1s")
	clitest.Has(t, "without a load", r.stderr, "dynctl: cannot plan: too little was seen")
	for i := range 20 {
		load.Requests = append(load.Requests, cluster.RecordedRequest{At: clitest.Noon.Add(time.Duration(i) * 2 * time.Second), Model: w.topology().Model.Name, Prompt: 9, Output: 3, Blocks: []uint64{7}})
	}
	r = w.with(t.Context(), env, "plan", "--ttft", "1s", "--itl", "1s")
	clitest.Has(t, "without a profile", r.stderr, "dynctl: cannot plan: the cluster does not know the performance of its workers")
	learned := profile.Learned{Time: time.Now(), Profile: profile.Profile{
		Version: 1, Devices: 1, Step: profile.Costs{Step: 0.25}, Limits: profile.Limits{KVBlocks: 100, BlockSize: 64, MaxSeqs: 8, MaxBatchTokens: 512, MaxContext: 6400},
	}}
	if _, err := store.PutJSON(t.Context(), w.store, cluster.ProfileKey(w.ns), learned); err != nil {
		t.Fatal(err)
	}
	r = w.with(t.Context(), env, "plan", "--ttft", "1s", "--itl", "1s")
	if r.code != exit.Failed || r.stderr != "" {
		t.Errorf("%+v", r)
	}
	clitest.Has(t, "what dynlab got", r.stdout, "size\n--ttft=1s\n--itl=1s\n--trace load.jsonl:\n{\"timestamp\":0,", "--profile profile.json:\n", "--file declared.yaml:\nmodel:\n")
	if left, _ := filepath.Glob(filepath.Join(os.TempDir(), "dynctl-plan-*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
