package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cli/clitest"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
)

func TestGetOfAnEmptyCluster(t *testing.T) {
	w := newWorld(t)
	for what, tc := range map[string]struct{ json, hint string }{
		"workers":  {"[]\n", "no workers in cluster lab"},
		"nodes":    {"[]\n", "no node of cluster lab is up"},
		"leases":   {"[]\n", "has a lease"},
		"locks":    {"[]\n", "nobody has a lock in cluster lab"},
		"topology": {"null\n", "nothing was ever declared in cluster lab"},
	} {
		if r := w.ok("get", what); !strings.Contains(r.stderr, tc.hint) || strings.Count(r.stdout, "\n") != 1 {
			t.Errorf("get %s: %+v", what, r)
		}
		if r := w.ok("get", what, "-o", "json"); r.stdout != tc.json || r.stderr != "" {
			t.Errorf("get %s -o json: %+v", what, r)
		}
	}
}

// The same worker in every form: what ps prints is what get prints.
func TestGetIsWhatPsPrints(t *testing.T) {
	w := newWorld(t)
	w.agent(fakeConfig{Sequences: 2})
	w.up(1, 1)
	for _, form := range []string{"table", "name"} {
		if a, b := w.ok("ps", "-o", form).stdout, w.ok("get", "workers", "-o", form).stdout; a != b {
			t.Errorf("-o %s: ps prints\n%sget workers\n%s", form, a, b)
		}
		if a, b := w.ok("ps", "--nodes", "-o", form).stdout, w.ok("get", "nodes", "-o", form).stdout; a != b {
			t.Errorf("-o %s: ps --nodes prints\n%sget nodes\n%s", form, a, b)
		}
	}
	var leases []cluster.Lease
	if err := json.Unmarshal([]byte(w.ok("get", "leases", "-o", "json").stdout), &leases); err != nil {
		t.Fatal(err)
	}
	if len(leases) != 3 || leases[0].Owner != "node-1" && leases[2].Owner != "node-1" || leases[1].TTL != 10*time.Second || leases[1].Left <= 0 {
		t.Errorf("leases: %+v", leases)
	}
	var queues []client.Queue
	if err := json.Unmarshal([]byte(w.ok("get", "queues", "-o", "json").stdout), &queues); err != nil {
		t.Fatal(err)
	}
	if len(queues) != 3 || queues[0].Name != client.PrefillQueue || queues[0].DeadLettered == nil || queues[2].InWork != 2 || *queues[2].Limit != 8 {
		t.Errorf("queues: %+v", queues)
	}
	if queues[1].TransferWait != nil || queues[2].TransferWait == nil {
		t.Errorf("only decode workers wait for transfers: %+v", queues)
	}
	var topo cluster.Topology
	if err := json.Unmarshal([]byte(w.ok("get", "topology", "-o", "json").stdout), &topo); err != nil || !topo.Equal(w.topology()) {
		t.Errorf("topology: %+v %v", topo, err)
	}
}

func TestGetWithoutAnEventPlane(t *testing.T) {
	w := newWorld(t)
	w.agent(fakeConfig{})
	w.up(0, 1)
	quiet := options{}
	for _, e := range w.env {
		if !strings.HasPrefix(e, "NATS_SERVER=") {
			quiet.env = append(quiet.env, e)
		}
	}
	r := runMain(t.Context(), quiet, "get", "queues", "-q")
	if r.code != exit.OK || r.stdout != "worker-1\n" {
		t.Errorf("queues: %+v", r)
	}
	if r := runMain(t.Context(), quiet, "get", "events", "--for", "10ms"); r.code != exit.Unreachable || !strings.Contains(r.stderr, "--nats-url") {
		t.Errorf("events: %+v", r)
	}
	// One that is configured and does not answer is no empty queue.
	quiet.env = append(quiet.env, "NATS_SERVER=nats://127.0.0.1:1")
	r = runMain(t.Context(), quiet, "get", "queues")
	if r.code != exit.OK || !strings.Contains(r.stdout, "worker-1\tengine") || strings.Contains(r.stdout, "prefill\t") {
		t.Errorf("queues: %+v", r)
	}
	clitest.Has(t, "stderr", r.stderr, "ask for the prefill queue")
	r = runMain(t.Context(), quiet, "get", "queues", "-o", "name")
	clitest.Has(t, "stderr of names", r.stderr, "ask for the prefill queue")
}

// A watch prints what changes, and begins with what is there.
func TestGetWatchesTheTopology(t *testing.T) {
	w := newWorld(t)
	w.agent(fakeConfig{})
	w.up(0, 1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	done := make(chan struct{})
	first := &watchWriter{want: `"decode":1`, then: func() {
		go func() { defer close(done); w.run("scale", "--decode", "2", "--no-wait") }()
	}}
	r := w.with(ctx, options{stdout: io.MultiWriter(first, &watchWriter{want: `"decode":2`, then: cancel})}, "get", "topology", "-w", "-o", "json")
	<-done
	if r.code != exit.Interrupted || strings.Count(r.stdout, "\n") != 2 {
		t.Errorf("%+v", r)
	}
	if r := w.run("get", "workers", "worker-9", "-w"); r.code != exit.Failed || r.stdout != "" {
		t.Errorf("a watch of nobody: %+v", r)
	}
}

// Instance ids exceed what JavaScript and jq keep as numbers: they are texts, too, and name
// their workers and nodes in any form.
func TestInstanceIDsAreTexts(t *testing.T) {
	w := newWorld(t)
	w.agent(fakeConfig{})
	w.up(0, 1)
	var workers []struct {
		ID  json.Number `json:"instance_id"`
		Hex string      `json:"instance_id_hex"`
	}
	if err := json.Unmarshal([]byte(w.ok("ps", "-o", "json").stdout), &workers); err != nil || len(workers) != 1 {
		t.Fatal(workers, err)
	}
	n, err := strconv.ParseUint(workers[0].ID.String(), 10, 64)
	if err != nil || workers[0].Hex != fmt.Sprintf("0x%x", n) {
		t.Fatalf("got %+v", workers)
	}
	bare, decimal := strings.TrimPrefix(workers[0].Hex, "0x"), workers[0].ID.String()
	for _, id := range []string{workers[0].Hex, bare, strings.ToUpper(bare), decimal, "worker-1"} {
		for _, line := range []string{"get workers " + id + " -q", "explain worker " + id, "explain lease " + id, "drain --dry-run " + id} {
			r := w.run(strings.Fields(line)...)
			if r.code != 0 || !strings.Contains(r.stdout, "worker-1") {
				t.Errorf("dynctl %s: %+v", line, r)
			}
		}
	}
	if r := w.run("explain", "worker", "0x1"); r.code == 0 {
		t.Errorf("an id of nobody: %+v", r)
	}
}
