package clustertest

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/external/inferencesimtest"
	"github.com/dynctl/dynctl/internal/model"
)

// simulator is a server of vLLM's kind that nobody here wrote, attached to a cluster.
type simulator struct {
	*inferencesimtest.Server
	port  int
	flags []string
	spec  cluster.Attached
}

// attachSimulator starts a simulator for a role. Its folder has the tokenizer of the cluster's
// model.
func attachSimulator(t *testing.T, c *Cluster, role cluster.Role, flags ...string) *simulator {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &simulator{port: ln.Addr().(*net.TCPAddr).Port, flags: append([]string{"--model", c.Model, "--mode", "echo", "--max-num-seqs", "64"}, flags...)}
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	s.start(t)
	s.spec = cluster.Attached{
		Model: cluster.ModelSpec{Name: c.Model, Path: c.opts.Model}, Role: role,
		Engine: cluster.EngineSpec{Backend: cluster.BackendVLLM, Server: cluster.External{URL: s.URL}},
	}
	return s
}

func (s *simulator) start(t *testing.T) {
	t.Helper()
	s.Server = inferencesimtest.StartAt(t, s.port, s.flags...)
}

// attach declares servers beside what there is.
func (c *Cluster) attach(all ...*simulator) {
	c.t.Helper()
	c.Insist(func(ctx context.Context) error {
		_, err := c.Client.Declare(ctx, func(t *cluster.Topology, _ bool) error {
			t.Attached = nil
			for _, s := range all {
				t.Attached = append(t.Attached, s.spec)
			}
			return nil
		})
		return err
	})
}

// workerOf returns the name of the worker of a server.
func (c *Cluster) workerOf(s *simulator) string {
	for _, a := range c.Watch.View().Assignments {
		if a.Engine.Server.URL == s.spec.URL() {
			return a.Name
		}
	}
	return ""
}

// serves waits until the worker of a server is ready, or until it is not.
func (c *Cluster) serves(s *simulator, want bool) {
	c.t.Helper()
	c.WaitView(fmt.Sprintf("the worker of %s serves: %t", s.spec.URL(), want), func(v client.View) bool {
		for _, w := range v.Workers() {
			if v.Assignments[w.Name].Engine.Server.URL == s.spec.URL() {
				return w.State.Serving() == want
			}
		}
		return false
	})
}

// builtinFolder is the folder of the built-in model.
func builtinFolder(t *testing.T) string {
	t.Helper()
	dir, err := model.Builtin(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// mixedStreams is the variable that says how many clients TestMixedFleet has at a time; 12 without
// it.
const mixedStreams = "DYNCTL_MIXED_STREAMS"

// Two servers of another engine, as prefill and decode workers, and two decode workers of our own
// serve one model. Each of them is killed under load, and each is drained: no request fails.
func TestMixedFleet(t *testing.T) {
	clients := 12
	if text := os.Getenv(mixedStreams); text != "" {
		var err error
		if clients, err = strconv.Atoi(text); err != nil {
			t.Fatalf("%s: %v", mixedStreams, err)
		}
	}
	c := Start(t, Options{
		Model: builtinFolder(t), Decode: 2, LeaseTTL: 3 * time.Second,
		Nodes: []Node{{Roles: []string{"prefill"}}, {Process: true, Roles: []string{"decode"}}, {Process: true, Roles: []string{"decode"}}},
	})
	slow := []string{"--inter-token-latency", "5ms", "--time-to-first-token", "5ms", "--max-num-seqs", "256"}
	p, d := attachSimulator(t, c, cluster.RolePrefill, slow...), attachSimulator(t, c, cluster.RoleDecode, slow...)
	c.attach(p, d)
	c.WaitReady(1, 3)

	ctx, enough := context.WithTimeout(t.Context(), 3*time.Minute)
	defer enough()
	var load sync.WaitGroup
	var done, failed atomic.Int32
	stop := make(chan struct{})
	for i := range clients {
		load.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				prompt := fmt.Sprintf("%d of %d: %s", n, i, strings.Repeat("word ", 60))
				if n%3 == 0 {
					prompt = "short"
				}
				if _, err := c.Complete(ctx, Body{"prompt": prompt, "max_tokens": 24, "temperature": 0, "ignore_eos": true}); err != nil {
					failed.Add(1)
					t.Errorf("request %d of client %d: %v", n, i, err)
					return
				}
				done.Add(1)
			}
		})
	}
	more := func(what string) {
		t.Helper()
		for want := done.Load() + int32(3*clients); done.Load() < want && failed.Load() == 0; {
			select {
			case <-time.After(5 * time.Millisecond):
			case <-ctx.Done():
				t.Fatalf("%s: requests hang", what)
			}
		}
		t.Logf("%s: %d requests", what, done.Load())
	}
	more("all well")
	for _, s := range []*simulator{d, p} {
		s.Kill()
		c.serves(s, false)
		more("without " + string(s.spec.Role) + " server")
		s.start(t)
		c.serves(s, true)
		more("with it again")
	}
	var names []string
	for name := range c.Watch.View().Assignments {
		names = append(names, name)
	}
	for _, name := range names {
		c.Insist(func(ctx context.Context) error { return c.Client.Drain(ctx, name, time.Now().Add(time.Minute), false) })
		c.WaitView(name+" is drained", func(v client.View) bool {
			return v.Status[name].State == cluster.StateDrained && v.Status[name].Drain.Safe
		})
		more("without " + name)
		c.Insist(func(ctx context.Context) error { return c.Client.Resume(ctx, name) })
		c.WaitView(name+" is back", func(v client.View) bool { return v.Status[name].State.Serving() })
	}
	for _, n := range c.Nodes[1:] {
		n.Kill()
		more("without a node of our own")
		n.Restart()
		c.WaitReady(1, 3)
		more("all back")
	}
	close(stop)
	load.Wait()
	if n := done.Load(); n < 200 {
		t.Errorf("only %d requests", n)
	}
	c.attach()
	c.WaitReady(0, 2)
}

// KV events of either encoding make the frontend route by what servers have in their caches, and
// a server that starts again has nothing.
func TestEventsOfServers(t *testing.T) {
	c := Start(t, Options{Model: builtinFolder(t), Config: func(cfg *config.Dynamod) { cfg.Router.Policy = "kv" }})
	var all []*simulator
	for _, encoding := range [][]string{nil, {"--use-vllm-map-event-format"}} {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		port := ln.Addr().(*net.TCPAddr).Port
		if err := ln.Close(); err != nil {
			t.Fatal(err)
		}
		flags := append([]string{"--enable-kvcache", "--block-size", "16", "--event-batch-size", "1", "--zmq-endpoint", fmt.Sprintf("tcp://127.0.0.1:%d", port)}, encoding...)
		s := attachSimulator(t, c, cluster.RoleDecode, flags...)
		s.spec.Engine.Server.Events = fmt.Sprintf("tcp://*:%d", port) // it connects
		all = append(all, s)
	}
	// These servers try for seconds to connect where they tell events, and not again: they start
	// when the node listens.
	for _, s := range all {
		s.Kill()
	}
	c.attach(all...)
	for _, s := range all {
		c.WaitView("the node waits for the server", func(v client.View) bool {
			return c.workerOf(s) != "" && v.Status[c.workerOf(s)].State == cluster.StateLoading
		})
		s.start(t)
	}
	c.WaitReady(0, 2)
	status := func(s *simulator) (st cluster.WorkerStatus) {
		for _, st := range c.LiveStats() {
			if st.ServerStatus != nil && st.ServerStatus.URL == s.URL {
				return st
			}
		}
		return st
	}
	want := make([]uint64, len(all))
	for i, s := range all {
		want[i] = uint64(c.hears(s)) + 4
		prompt := fmt.Sprint(i) + strings.Repeat(" words", 100)
		if _, err := c.Complete(t.Context(), Body{"prompt": prompt, "max_tokens": 4, "nvext": Body{"decode_worker_id": c.workerOf(s)}}); err != nil {
			t.Fatal(err)
		}
		c.WaitView("the frontend knows its blocks", func(client.View) bool {
			w, blocks := c.index(s, c.Model, prompt)
			return blocks > 0 && w.Overlap == blocks
		})
	}
	for range 3 {
		for i := range all {
			if _, err := c.Complete(t.Context(), Body{"prompt": fmt.Sprint(i) + strings.Repeat(" words", 100), "max_tokens": 4}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i, s := range all {
		if st := status(s); st.Stats.RequestsTotal != want[i] || st.ServerStatus.Events.Undecodable+st.ServerStatus.Events.Unknown > 0 {
			t.Errorf("server %d: %d requests, want %d, %+v", i, st.Stats.RequestsTotal, want[i], st.ServerStatus.Events)
		}
	}
	all[0].Kill()
	c.serves(all[0], false)
	all[0].start(t)
	c.serves(all[0], true)
	if e := status(all[0]).ServerStatus.Events; e.Blocks != 0 {
		t.Errorf("a server that has just started: %+v", e)
	}
}
