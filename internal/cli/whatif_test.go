package cli

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cli/clitest"
	"github.com/dynctl/dynctl/internal/cli/command"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/session"
	"github.com/dynctl/dynctl/internal/cli/term"
	"github.com/dynctl/dynctl/internal/cli/top"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/profile"
	"github.com/dynctl/dynctl/internal/store"
	"github.com/dynctl/dynctl/internal/tui"
)

// The load and the profile of the cluster, and both topologies, are put before dynlab; too little of any is refused.
func TestWhatIf(t *testing.T) {
	w := newWorld(t)
	load := &cluster.RecordedLoad{Frontend: "node-1"}
	w.agent(fakeConfig{Recorded: load})
	w.up(1, 2)
	model := w.topology().Model.Name
	dir := playDynlab(t, `for a in "$@"; do case $a in --*=/*) f=${a#*=}; echo "${a%%=*} ${f##*/}:"; cat "$f";; *) echo "$a";; esac; done`)
	file := filepath.Join(dir, "next.yaml")
	if err := os.WriteFile(file, []byte("prefill: 2\ndecode: 3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := options{env: []string{"PATH=" + dir + ":/usr/bin:/bin"}}
	fails := func(want ...string) {
		t.Helper()
		r := w.with(t.Context(), env, "diff", "-f", file, "--what-if")
		if r.code != exit.Failed || r.stdout != "" {
			t.Errorf("%+v", r)
		}
		clitest.Has(t, "refusal", r.stderr, want...)
	}
	for i := range 20 {
		load.Requests = append(load.Requests, cluster.RecordedRequest{At: clitest.Noon.Add(time.Duration(i) * time.Second), Model: model, Prompt: 9, Output: 3, Blocks: []uint64{7}})
	}
	fails("too little was seen: 20 requests of "+model+" answered, over 19s; at least 20 over 30s are needed", "try: dynctl bench")
	load.Requests[19].At = clitest.Noon.Add(time.Minute)
	fails("does not know the performance of its workers: no node that leads has told it", "try: --profile FILE")
	put := func(l profile.Learned) {
		t.Helper()
		if _, err := store.PutJSON(t.Context(), w.store, cluster.ProfileKey(w.ns), l); err != nil {
			t.Fatal(err)
		}
	}
	put(profile.Learned{Node: "node-1", Missing: "No worker has decoded"})
	fails("No worker has decoded")
	learned := profile.Learned{Node: "node-1", Time: time.Now().Add(-time.Minute), Unknown: []string{"kv"}, Profile: profile.Profile{
		Version: 1, Name: model, Devices: 1, Step: profile.Costs{Step: 0.25},
		Limits: profile.Limits{KVBlocks: 100, BlockSize: 64, MaxSeqs: 8, MaxBatchTokens: 512, MaxContext: 6400},
	}}
	put(learned)
	r := w.with(t.Context(), env, "diff", "-f", file, "--what-if")
	if r.code != 0 {
		t.Errorf("%+v", r)
	}
	clitest.Has(t, "what dynlab got", r.stdout, "simulate\n", "--trace load.jsonl:\n{\"timestamp\":0,\"input_length\":9,\"output_length\":3,\"hash_ids\":[0]}\n", "\n{\"timestamp\":60000,",
		"--file now:\n", "decode:\n  workers: 2\n", "--compare next:\n", "prefill:\n  workers: 2\ndecode:\n  workers: 3\n", "--profile profile.json:\n", `"step_s": 0.25`, "--shared-devices=1\n")
	clitest.Has(t, "what people are told", r.stderr, "up to 5 workers share 1 device: they compute in turns")
	r = w.with(t.Context(), env, "up", "--decode", "5", "--what-if", "--profile", file, "-o", "json")
	if r.code != 0 || w.topology().Decode != 2 {
		t.Errorf("%+v", r)
	}
	clitest.Has(t, "what dynlab got", r.stdout, "--profile next.yaml:\nprefill: 2\n", "--compare next:\n", "decode:\n  workers: 5\n", "simulate\n--json\n")
	if left, _ := filepath.Glob(filepath.Join(os.TempDir(), "dynctl-what-if-*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	shown := whatIfText(t, w, env, client.Action{Kind: client.ActScale, Workers: cluster.Counts{cluster.RolePrefill: 0}})
	clitest.Has(t, "for a screen", shown, "simulate\n", "--file now:\n", "prefill:\n  workers: 1\n", "--compare next:\nmodel:\n  name: "+model+"\ndecode:\n")
	r = w.ok("get", "profile")
	clitest.Has(t, "profile", r.stdout, `"name": "`+model+`"`, `"step_s": 0.25`)
	clitest.Has(t, "notes", r.stderr, "of "+model+", learned by node-1, 1m ago\n", "nothing has shown kv: 0 in the profile\n")
	if r := w.run("diff", "-f", file, "--what-if"); r.code != exit.Failed {
		t.Errorf("without dynlab: %+v", r)
	}
}

// whatIfText asks what the dashboard asks.
func whatIfText(t *testing.T, w *world, o options, order client.Action) string {
	t.Helper()
	asked := ""
	look := func(ctx context.Context, _ client.Source, opts tui.Options) error {
		var err error
		asked, err = opts.WhatIf(ctx, order)
		return err
	}
	a := command.New(session.Env{Environ: append(append([]string{"TERM=xterm"}, w.env...), o.env...), Executable: func() (string, error) { return "/nowhere/dynctl", nil }, Streams: term.Streams{Out: io.Discard, Err: io.Discard, InTTY: true, OutTTY: true}})
	a.Do = func(ctx context.Context, r command.Runner) error {
		r.(*top.Options).Dashboard = look
		return r.Run(ctx)
	}
	root := root(a)
	root.SetArgs([]string{"top"})
	if err := root.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	return asked
}
