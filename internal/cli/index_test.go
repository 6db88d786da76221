package cli

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cli/clitest"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cluster"
)

// someIndex is the index of a frontend that knows two workers, about a prompt of 100 tokens.
func someIndex() *cluster.KVIndex {
	return &cluster.KVIndex{
		Frontend: "node-1", Blocks: 1200, Held: 1500, Bytes: 64 << 10, Forgotten: 7, PromptTokens: 100, PromptBlocks: 6, BlockSize: 16,
		Workers: []cluster.KVIndexWorker{
			{Worker: "worker-1", InstanceID: 7, Device: 1000, Host: 20, Disk: 3, Epoch: 0xabc, Next: 41, Overlap: 5,
				Accuracy: cluster.KVAccuracy{Requests: 9, Predicted: 100, Found: 95, False: 5}},
			{Worker: "worker-2", InstanceID: 8, Device: 500, Epoch: 0xdef, Next: 12, GapsTotal: 4, AnswersTotal: 2, DumpsTotal: 1, ResetsTotal: 1,
				OutOfDateSince: clitest.Noon, Accuracy: cluster.KVAccuracy{Requests: 3, Predicted: 10, Found: 8, False: 2}},
		},
	}
}

func TestGetIndex(t *testing.T) {
	w := newWorld(t)
	if r := w.run("get", "index"); r.code == exit.OK || !strings.Contains(r.stderr, "no frontend reports its prefix index") {
		t.Errorf("no frontend: %+v", r)
	}
	w.agent(fakeConfig{Index: someIndex()})
	r := w.ok("get", "index")
	want := "WORKER\tFRONTEND\tDEVICE\tHOST\tDISK\tEPOCH\tNEXT\tOUT OF DATE\tPREDICTED\tFOUND\tFALSE\n" +
		"worker-1\tnode-1\t1000\t20\t3\tabc\t41\t-\t100\t95\t5\n" +
		"worker-2\tnode-1\t500\t0\t0\tdef\t12\t" + clitest.Noon.UTC().Format(time.RFC3339) + "\t10\t8\t2\n"
	if r.stdout != want || r.stderr != "index of node-1 (by KV events): 1,200 blocks at 1,500 places in all, 64.0 KiB; 7 forgotten for want of memory\n" {
		t.Errorf("table:\n%s%s", r.stdout, r.stderr)
	}
	clitest.Has(t, "wide", w.ok("get", "index", "worker-2", "-o", "wide").stdout, "REQUESTS\tGAPS\tANSWERS\tDUMPS\tRESETS\tINSTANCE\n", "\t3\t4\t2\t1\t1\t8\n")
	var rows []struct {
		Frontend, Worker string
		Device           int
		Accuracy         cluster.KVAccuracy
		Index            struct {
			Blocks    int
			Bytes     int64
			Forgotten uint64 `json:"forgotten_total"`
		}
	}
	if err := json.Unmarshal([]byte(w.ok("get", "index", "-o", "json").stdout), &rows); err != nil {
		t.Fatal(err)
	}
	if len(rows) != 2 || rows[0].Worker != "worker-1" || rows[0].Frontend != "node-1" || rows[0].Device != 1000 || rows[1].Accuracy.False != 2 || rows[0].Index.Blocks != 1200 || rows[0].Index.Forgotten != 7 {
		t.Errorf("%+v", rows)
	}
	clitest.Has(t, "yaml", w.ok("get", "index", "-o", "yaml").stdout, "- frontend: node-1\n  worker: worker-1\n", "    predicted_blocks: 100\n")
	if r := w.ok("get", "index", "-q"); r.stdout != "worker-1\nworker-2\n" {
		t.Errorf("-q: %q", r.stdout)
	}
	if r := w.run("get", "index", "worker-1", "worker-9"); r.code != exit.Partly || !strings.Contains(r.stderr, "worker-9") {
		t.Errorf("unknown: %+v", r)
	}
}

func TestGetIndexWithoutEvents(t *testing.T) {
	w := newWorld(t)
	x := someIndex()
	x.Approximate, x.Forgotten = true, 0
	w.agent(fakeConfig{Index: x})
	r := w.ok("get", "index", "worker-1")
	clitest.Has(t, "approximate", r.stdout, "worker-1\tnode-1\t1000\t20\t3\t-\t-\t-\t100\t95\t5\n")
	clitest.Has(t, "approximate", r.stderr, "index of node-1 (approximate: by what was routed, without KV events)")
}

func TestExplainPrefix(t *testing.T) {
	w := newWorld(t)
	if r := w.run("explain", "prefix", "hello"); r.code != exit.Unreachable || !strings.Contains(r.stderr, "no frontend reports its prefix index") {
		t.Errorf("no frontend: %+v", r)
	}
	w.agent(fakeConfig{Index: someIndex()})
	want := "WORKER\tFRONTEND\tBLOCKS\tTOKENS\tSHARE\tINDEX\n" +
		"worker-1\tnode-1\t5/6\t80/100\t80%\tevents\n" +
		"worker-2\tnode-1\t0/6\t0/100\t0%\tevents\n"
	if r := w.ok("explain", "prefix", "a long text"); r.stdout != want || r.stderr != "" {
		t.Errorf("%s%s", r.stdout, r.stderr)
	}
	if r := w.ok("explain", "prefix", "a long text", "-q"); r.stdout != "worker-1\n" {
		t.Errorf("-q: %q", r.stdout)
	}
	var all []cluster.KVIndex
	if err := json.Unmarshal([]byte(w.ok("explain", "prefix", "a long text", "-o", "json").stdout), &all); err != nil || len(all) != 1 || all[0].Workers[0].Overlap != 5 || all[0].BlockSize != 16 {
		t.Errorf("%+v %v", all, err)
	}
	if r := w.run("explain", "prefix", "text", "--model", "other"); r.code != exit.Failed || !strings.Contains(r.stderr, "model other is not served") {
		t.Errorf("unknown model: %+v", r)
	}
	if r := w.run("explain", "prefix", "two", "words"); r.code != exit.Usage {
		t.Errorf("two words: %+v", r)
	}
}

// Below the table each frontend says what it knows of the requests of the others.
func TestGetIndexOfReplicas(t *testing.T) {
	for want, r := range map[string]*cluster.ReplicaSync{
		"requests of other frontends, as node-1 knows them: not counted, there is no event plane\n": {Off: "there is no event plane"},
		"requests of other frontends, as node-1 knows them: 0 in flight at 0 frontends\n":           {},
		"requests of other frontends, as node-1 knows them: 5 in flight at 2 frontends, 1 of them out of date\n": {Frontends: []cluster.ReplicaFrontend{
			{Frontend: "node-2", Flights: 3}, {Frontend: "node-3", Flights: 2, OutOfDateSince: clitest.Noon},
		}},
	} {
		w := newWorld(t)
		x := someIndex()
		x.ReplicaSync = r
		w.agent(fakeConfig{Index: x})
		clitest.Has(t, want, w.ok("get", "index").stderr, "64.0 KiB; 7 forgotten for want of memory\n"+want)
		if len(r.Frontends) > 0 {
			clitest.Has(t, "json", w.ok("get", "index", "-o", "json").stdout, `"out_of_date_since"`, `"flights": 3`)
		}
	}
}
