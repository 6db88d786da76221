package clustertest_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/clustertest"
	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/model/modeltest"
)

// mediumModel takes long enough for a prompt or a text that a fault hits it in the
// middle.
func mediumModel(t *testing.T) string {
	return modeltest.Generate(t, modeltest.Spec{Layers: 4, Hidden: 128, Heads: 4, KVHeads: 2, ContextLen: 8192, Seed: 7})
}

// texts are prompts of several blocks.
func texts(n, words int) []string {
	r := rand.New(rand.NewPCG(5, 5))
	vocabulary := strings.Fields("the a worker block prefix token queue lease moves writes waits reads sends sees holds and of to in with fast slow long short")
	var out []string
	for i := range n {
		words := words/2 + r.IntN(words)
		s := []string{fmt.Sprint("request ", i)}
		for range words {
			s = append(s, vocabulary[r.IntN(len(vocabulary))])
		}
		out = append(out, strings.Join(s, " "))
	}
	return out
}

// burst streams all prompts at once and returns what came back.
func burst(t *testing.T, c *clustertest.Cluster, prompts []string, tokens int) []clustertest.Answer {
	t.Helper()
	answers := make([]clustertest.Answer, len(prompts))
	var wg sync.WaitGroup
	for i, p := range prompts {
		wg.Go(func() {
			a, err := c.Complete(t.Context(), clustertest.Body{"prompt": p, "max_tokens": tokens, "temperature": 0, "ignore_eos": true})
			if err != nil {
				t.Errorf("stream %d: %v", i, err)
			}
			answers[i] = a
		})
	}
	wg.Wait()
	return answers
}

// same compares two runs of the same prompts.
func same(t *testing.T, got, want []clustertest.Answer) {
	t.Helper()
	for i := range want {
		if got[i].Text != want[i].Text || got[i].Finish != want[i].Finish || got[i].Usage != want[i].Usage {
			t.Errorf("stream %d: got %q %s %+v, want %q %s %+v", i, got[i].Text, got[i].Finish, got[i].Usage, want[i].Text, want[i].Finish, want[i].Usage)
		}
	}
}

// The dynamod with the prefill workers is killed in the middle of a burst of 50
// streams: every stream ends correctly.
func TestKillPrefillNode(t *testing.T) {
	t.Parallel()
	dir := mediumModel(t)
	prompts := texts(50, 160/slowdown)
	options := clustertest.Options{Model: dir, Decode: 2, Engine: cluster.EngineSpec{BlockSize: 16, KVBlocks: 2048}}
	want := func() []clustertest.Answer {
		return burst(t, clustertest.Start(t, options), prompts, 24)
	}()
	options.Prefill = 2
	options.Nodes = []clustertest.Node{{Roles: []string{"decode"}}, {Roles: []string{"prefill"}, Process: true}}
	options.LeaseTTL = faultTTL
	c := clustertest.Start(t, options)
	c.WaitRemotePrefill()
	wantTransport(t, c, sameHost)
	before := decodeStats(t, c, 2)

	// In the middle of the burst, and of a write: two workers hold at most four prompts, so
	// that some are done by then, and this one is not.
	if err := c.Nodes[1].DieAt("prefill.first-written", 12); err != nil {
		t.Fatal(err)
	}
	got := burst(t, c, prompts, 24)
	waitDead(t, c.Nodes[1])
	same(t, got, want)

	// Nothing is counted twice, nothing is left.
	c.WaitRest()
	after := decodeStats(t, c, 2)
	var finished, remote, fallback uint64
	for name, s := range after {
		finished += s.FinishedTotal - before[name].FinishedTotal
		remote += s.RemotePrefillTotal - before[name].RemotePrefillTotal
		fallback += s.FallbackTotal - before[name].FallbackTotal
	}
	t.Logf("%d finished, %d prefilled remotely, %d fell back", finished, remote, fallback)
	if finished != 50 {
		t.Errorf("decode workers finished %d requests, want 50", finished)
	}
	if fallback == 0 || remote == 0 {
		t.Error("the process died too late or too early to test anything")
	}
	// The controller moves the prefill workers to the node that is left.
	c.WaitReady(2, 2)
}

// faultTTL is short, for tests that wait for the leases of who was killed to end.
const faultTTL = 4 * time.Second

// waitDead waits until the process of a node has died at the failpoint it was given.
func waitDead(t *testing.T, n *clustertest.RunningNode) {
	t.Helper()
	select {
	case <-n.Died():
	case <-time.After(time.Minute):
		t.Fatalf("%s never reaches its failpoint", n.Name)
	}
}

// decodeStats asks so many decode workers for their present counts.
func decodeStats(t *testing.T, c *clustertest.Cluster, workers int) map[string]cluster.WorkerStats {
	t.Helper()
	var out map[string]cluster.WorkerStats
	c.WaitView(fmt.Sprintf("%d decode workers answer", workers), func(client.View) bool {
		out = map[string]cluster.WorkerStats{}
		for _, st := range c.LiveStats() {
			if st.Role == cluster.RoleDecode {
				out[st.Name] = st.Stats
			}
		}
		return len(out) == workers
	})
	return out
}

// counted checks that the frontend has counted so many requests since before, all of
// them good. It counts a request a moment after the client has its last byte.
func counted(t *testing.T, c *clustertest.Cluster, before map[string]int, n int) {
	t.Helper()
	got := requestCounts(t, c)
	for deadline := time.Now().Add(time.Minute); got[""]-before[""] < n && time.Now().Before(deadline); got = requestCounts(t, c) {
		time.Sleep(5 * time.Millisecond)
	}
	if got[""]-before[""] != n || len(got) != 1 {
		t.Errorf("the frontend counts %v (before: %v), clients made %d requests", got, before, n)
	}
}

var requestsTotal = regexp.MustCompile(`(?m)^dynamo_frontend_requests_total\{[^}]*error_type="([^"]*)"[^}]*\} (\S+)$`)

// settledCounts is requestCounts when no request is counted as running any more: one
// is counted a little after its client has the end of the answer.
func settledCounts(t *testing.T, c *clustertest.Cluster) map[string]int {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		got := c.Metrics()
		if !stillRunning.MatchString(got) {
			return requestCounts(t, c)
		}
		if time.Now().After(deadline) {
			t.Fatalf("requests run that no client waits for:\n%s", got)
		}
	}
}

// stillRunning matches the gauge of requests that run, unless it is zero.
var stillRunning = regexp.MustCompile(`(?m)^dynamo_frontend_inflight_requests(\{[^}]*\})? [^0\n]`)

// requestCounts reads the frontend's request counters by error type.
func requestCounts(t *testing.T, c *clustertest.Cluster) map[string]int {
	t.Helper()
	out := map[string]int{}
	for _, m := range requestsTotal.FindAllStringSubmatch(c.Metrics(), -1) {
		v, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			t.Fatal(err)
		}
		out[m[1]] += int(v)
	}
	return out
}

// traffic sends requests one after the other on several connections until stop,
// and counts them.
type traffic struct {
	t    *testing.T
	c    *clustertest.Cluster
	want map[string]clustertest.Answer
	stop context.CancelFunc
	wg   sync.WaitGroup
	mu   sync.Mutex
	n    int
}

// tooLong is what a request takes only if it has waited for the deadline of its prefill.
const tooLong = 25 * time.Second

func startTraffic(t *testing.T, c *clustertest.Cluster, prompts []string, connections int) *traffic {
	tr := &traffic{t: t, c: c, want: map[string]clustertest.Answer{}}
	for i, a := range burst(t, c, prompts, 16) {
		tr.want[prompts[i]] = a
		tr.n++
	}
	ctx, stop := context.WithCancel(t.Context())
	tr.stop = stop
	for k := range connections {
		tr.wg.Go(func() {
			for i := k; ctx.Err() == nil; i++ {
				p := prompts[i%len(prompts)]
				begin := time.Now()
				// Not ctx: a request that has begun is finished.
				a, err := c.Complete(t.Context(), clustertest.Body{"prompt": p, "max_tokens": 16, "temperature": 0, "ignore_eos": true})
				if w := tr.want[p]; err != nil || a.Text != w.Text || a.Usage != w.Usage {
					t.Errorf("request: %v, got %q %+v, want %q %+v", err, a.Text, a.Usage, w.Text, w.Usage)
				}
				if took := time.Since(begin); took > tooLong {
					t.Errorf("a request took %s", took)
				}
				tr.mu.Lock()
				tr.n++
				tr.mu.Unlock()
			}
		})
	}
	return tr
}

// end stops the traffic and returns how many requests there were.
func (tr *traffic) end() int {
	tr.stop()
	tr.wg.Wait()
	return tr.n
}

func (tr *traffic) count() int {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.n
}

// goesOn waits for so many more requests.
func (tr *traffic) goesOn(during string, n int) {
	tr.t.Helper()
	from := tr.count()
	deadline := time.Now().Add(time.Minute)
	for tr.count() < from+n {
		if time.Now().After(deadline) {
			tr.t.Fatalf("%s: only %d more requests in a minute", during, tr.count()-from)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// NATS stops for three seconds: serving goes on, remote prefill comes back, and
// nothing is counted twice.
func TestNATSDown(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t, clustertest.Options{
		Model: mediumModel(t), Prefill: 1, Decode: 2, Engine: cluster.EngineSpec{BlockSize: 16, KVBlocks: 1024},
		Nodes: []clustertest.Node{{Roles: []string{"decode"}}, {Roles: []string{"prefill"}}},
	})
	c.WaitRemotePrefill()
	before := settledCounts(t, c)
	tr := startTraffic(t, c, texts(6, 40), 3)
	tr.goesOn("before the outage", 5)
	c.StopNATS()
	outage := time.Now()
	tr.goesOn("while NATS is down", 5)
	time.Sleep(time.Until(outage.Add(3 * time.Second))) // the length of the outage is the test
	c.StartNATS()
	tr.goesOn("after the outage", 5)
	n := tr.end()
	counted(t, c, before, n)
	waitQueueUsed(t, c)
}

// waitQueueUsed proves that prompts go through the queue again.
func waitQueueUsed(t *testing.T, c *clustertest.Cluster) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	bus, err := c.Client.Bus()
	if err != nil {
		t.Fatal(err)
	}
	defer bus.Close()
	for !bus.Connected() {
		if ctx.Err() != nil {
			t.Fatal("NATS is not reachable again")
		}
		time.Sleep(10 * time.Millisecond)
	}
	c.WaitRemotePrefill()
}

// etcd stops for longer than the leases live: serving goes on with what is known,
// and afterwards everything is registered again.
func TestEtcdDown(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t, clustertest.Options{
		Model: mediumModel(t), Prefill: 1, Decode: 2, Engine: cluster.EngineSpec{BlockSize: 16, KVBlocks: 1024},
		LeaseTTL: faultTTL, // shorter than the outage
		Nodes:    []clustertest.Node{{Roles: []string{"decode"}}, {Roles: []string{"prefill"}}},
	})
	c.WaitRemotePrefill()
	before := settledCounts(t, c)
	tr := startTraffic(t, c, texts(6, 40), 3)
	tr.goesOn("before the outage", 5)
	c.StopEtcd()
	outage := time.Now()
	for time.Since(outage) < 3*faultTTL/2 { // the length of the outage is the test
		tr.goesOn(fmt.Sprintf("%s into the outage", time.Since(outage).Round(time.Second)), 3)
	}
	c.StartEtcd()
	c.WaitReady(1, 2)
	tr.goesOn("after the outage", 5)
	n := tr.end()
	counted(t, c, before, n)
	c.WaitRemotePrefill()
	// The cluster still obeys.
	c.Declare(1, 3)
	c.WaitReady(1, 3)
}

// etcd and NATS come back without their data: nothing is cut, everything is written again,
// and the cluster obeys.
func TestServersForget(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t, clustertest.Options{
		Model: mediumModel(t), Prefill: 1, Decode: 2, Engine: cluster.EngineSpec{BlockSize: 16, KVBlocks: 1024},
		LeaseTTL: faultTTL,
		Nodes:    []clustertest.Node{{Roles: []string{"decode"}}, {Roles: []string{"prefill"}}},
	})
	c.WaitRemotePrefill()
	before := settledCounts(t, c)
	tr := startTraffic(t, c, texts(6, 40), 3)
	tr.goesOn("before", 5)
	for what, server := range map[string]struct{ stop, start func() }{"etcd": {c.StopEtcd, c.StartEtcd}, "NATS": {c.StopNATS, c.StartNATS}} {
		server.stop()
		tr.goesOn("without "+what, 3)
		c.Wipe()
		server.start()
		tr.goesOn("with an empty "+what, 5)
		c.WaitReady(1, 2)
	}
	n := tr.end()
	counted(t, c, before, n)
	c.WaitRemotePrefill()
	c.Declare(1, 3)
	c.WaitReady(1, 3)
}

// A decode worker's node is killed: running streams move and go on without a gap.
func TestKillDecodeNode(t *testing.T) {
	t.Parallel()
	dir := mediumModel(t)
	prompts := texts(8, 30)
	options := clustertest.Options{
		Model: dir, Decode: 2, Engine: cluster.EngineSpec{BlockSize: 16, KVBlocks: 2048},
		Config: func(cfg *config.Dynamod) { cfg.Router.Policy = "round-robin" },
	}
	const tokens = 1200 / slowdown // so many that the streams run for longer than it takes to hear of them
	want := burst(t, clustertest.Start(t, options), prompts, tokens)
	options.Nodes = []clustertest.Node{{}, {Process: true}}
	options.LeaseTTL = faultTTL
	c := clustertest.Start(t, options)
	var got []clustertest.Answer
	done := make(chan struct{})
	go func() {
		defer close(done)
		got = burst(t, c, prompts, tokens)
	}()
	c.WaitView("the second node is busy", func(v client.View) bool {
		for _, st := range c.LiveStats() {
			if st.Node == c.Nodes[1].ID && st.Stats.Running > 2 && st.Stats.GeneratedTotal > 20 {
				return true
			}
		}
		return false
	})
	c.Nodes[1].Kill()
	<-done
	same(t, got, want)
}

// A dynamod that is killed and started again before its lease ends has its workers back:
// the controller never sees that the node was gone, so none moves to another.
func TestQuickRestartKeepsWorkers(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t, clustertest.Options{Decode: 2, LeaseTTL: time.Minute, Nodes: []clustertest.Node{{}, {Process: true}}})
	n := c.Nodes[1]
	name := workerOf(t, c, n)
	first := c.Watch.View().Worker(name).InstanceID
	for range 3 {
		n.Kill()
		n.Restart()
		c.WaitView(name+" serves anew", func(v client.View) bool {
			w := v.Worker(name)
			return w.State.Serving() && w.InstanceID != first
		})
		w := c.Watch.View().Worker(name)
		if w.Node != n.ID {
			t.Fatalf("%s is on %s now", name, w.Node)
		}
		first = w.InstanceID
	}
	c.WaitReady(0, 2)
}
