package clustertest_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/clustertest"
	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/failpoint"
	"github.com/dynctl/dynctl/internal/protocol"
)

// soakVariable holds how long TestSoak runs, such as 10m; with it the other tests that
// have a short form run in full. See "make soak".
const soakVariable = "DYNCTL_SOAK"

// death is the end of a process at one step.
type death struct {
	point string
	way   protocol.PrefillWay // by which prompts are prefilled meanwhile
	// usual ones also run in a short test: one for each kind of state that is left behind.
	usual bool
}

var deathsOfPrefill = []death{
	{point: "prefill.fetched", way: protocol.WayQueue},
	{point: "prefill.metadata-loaded", way: protocol.WayQueue},
	{point: "prefill.start-told", way: protocol.WayQueue},
	{point: "prefill.first-written", way: protocol.WayQueue, usual: true},
	{point: "prefill.all-written", way: protocol.WayQueue},
	{point: "prefill.notified", way: protocol.WayQueue, usual: true},
	{point: "prefill.acknowledged", way: protocol.WayQueue},
	{point: "hold.computed", way: protocol.WayPull},
	{point: "hold.ticket-opened", way: protocol.WayPull},
	{point: "hold.told", way: protocol.WayPull, usual: true},
	{point: "hold.read-notice", way: protocol.WayPull},
	{point: "hold.ticket-revoked", way: protocol.WayPull},
	{point: "room.entered", way: protocol.WayBackground},
	{point: "room.opened", way: protocol.WayBackground},
	{point: "room.met", way: protocol.WayBackground},
	{point: "prefill.first-written", way: protocol.WayBackground, usual: true},
	{point: "prefill.all-written", way: protocol.WayBackground},
	{point: "room.answered", way: protocol.WayBackground},
}

var deathsOfDecode = []death{
	{point: "decode.ticket-opened", way: protocol.WayQueue},
	{point: "decode.queued", way: protocol.WayQueue, usual: true},
	{point: "decode.told", way: protocol.WayQueue},
	{point: "decode.ticket-revoked", way: protocol.WayQueue},
	{point: "decode.started", way: protocol.WayQueue},
	{point: "pull.metadata-loaded", way: protocol.WayPull},
	{point: "pull.posted", way: protocol.WayPull, usual: true},
	{point: "pull.read", way: protocol.WayPull},
	{point: "decode.started", way: protocol.WayPull},
	{point: "pull.read-notice-sent", way: protocol.WayPull},
	{point: "decode.ticket-opened", way: protocol.WayBackground},
	{point: "decode.told", way: protocol.WayBackground},
	{point: "decode.ticket-revoked", way: protocol.WayBackground},
	{point: "decode.started", way: protocol.WayBackground},
}

var deathsOfSource = []death{
	{point: "source.granted"},
	{point: "source.copied"},
	{point: "source.paused"},
	{point: "source.written"},
	{point: "source.committed"},
	{point: "source.moved"},
}

var deathsOfTarget = []death{
	{point: "target.reserved"},
	{point: "target.granted"},
	{point: "target.commit-asked"},
	{point: "target.ticket-revoked"},
	{point: "target.parked", usual: true},
	{point: "target.attached"},
}

var deathsOfEncode = []death{
	{point: "embeddings.offered"},
	{point: "embeddings.told", usual: true},
	{point: "embeddings.read-notice"},
}

var deathsOfReader = []death{
	{point: "embeddings.asked"},
	{point: "embeddings.answered"},
	{point: "embeddings.posted", usual: true},
	{point: "embeddings.arrived"},
}

// deathOfPlanner is that of the node that leads: TestPlannerActs.
var deathOfPlanner = death{point: "planner.declared"}

// A step that the source names is a step at which a process is killed.
func TestEveryFailpointIsTried(t *testing.T) {
	tried := map[string]bool{}
	for _, d := range slices.Concat(deathsOfPrefill, deathsOfDecode, deathsOfSource, deathsOfTarget, deathsOfEncode, deathsOfReader, []death{deathOfPlanner}) {
		tried[d.point] = true
	}
	if want := failpoint.Names(); len(want) == 0 || !slices.Equal(slices.Sorted(maps.Keys(tried)), want) {
		t.Errorf("tried %q, the product has %q", slices.Sorted(maps.Keys(tried)), want)
	}
}

// The process of a prefill or decode worker kills itself at each step of a remote
// prefill and of a hand-over, under load: every stream ends as it does when nothing
// happens, and is counted once.
func TestKillAtFailpoints(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("processes that kill themselves take their time")
	}
	dir := mediumModel(t)
	engine := cluster.EngineSpec{BlockSize: 16, KVBlocks: 2048, MaxBatchTokens: 64} // several chunks, several writes
	answers := map[string]streamed{}
	roundRobin := func(cfg *config.Dynamod) { cfg.Router.Policy = "round-robin" }
	for _, side := range []struct {
		name    string
		deaths  []death
		options clustertest.Options
		tokens  int
		drained int // node of the worker that is drained, 0: none
	}{
		{"prefill", deathsOfPrefill, clustertest.Options{Prefill: 2, Decode: 2, Nodes: []clustertest.Node{
			{Roles: []string{"prefill", "decode"}}, {Roles: []string{"prefill"}, Process: true},
		}}, 24, 0},
		{"decode", deathsOfDecode, clustertest.Options{Prefill: 1, Decode: 2, Nodes: []clustertest.Node{
			{Roles: []string{"prefill", "decode"}}, {Roles: []string{"decode"}, Process: true},
		}}, 24, 0},
		{"source", deathsOfSource, clustertest.Options{Decode: 2, Nodes: []clustertest.Node{{}, {Process: true}}}, 1000 / slowdown, 2},
		{"target", deathsOfTarget, clustertest.Options{Decode: 3, Nodes: []clustertest.Node{{}, {Process: true}}}, 1000 / slowdown, 1},
	} {
		t.Run(side.name, func(t *testing.T) {
			deaths := slices.DeleteFunc(slices.Clone(side.deaths), func(d death) bool { return !d.usual && os.Getenv(soakVariable) == "" })
			if len(deaths) == 0 {
				t.Skip("in full only: make soak")
			}
			o := side.options
			o.Model, o.Engine, o.Config = dir, engine, roundRobin
			c := clustertest.Start(t, o)
			way := protocol.PrefillWay("")
			for n, d := range deaths {
				t.Run(strings.TrimPrefix(string(d.way)+"/"+d.point, "/"), func(t *testing.T) {
					if d.way != way {
						c.Set(settingsFor(d.way))
						c.WaitWay(d.way)
						way = d.way
					}
					killAt(t, c, o, d.point, side.tokens, side.drained, fmt.Sprint(side.name, n), answers)
				})
				if t.Failed() {
					return
				}
			}
		})
	}
	if t.Failed() {
		return
	}
	t.Logf("%d streams", len(answers))
	compareUndisturbed(t, clustertest.Options{Model: dir, Decode: 1, Engine: engine}, answers)
}

func settingsFor(way protocol.PrefillWay) map[string]any {
	for _, s := range strategies {
		if s.way == way {
			return s.settings
		}
	}
	return nil
}

// killAt has the second node die at a step while streams run, waits for their ends and
// for its return.
func killAt(t *testing.T, c *clustertest.Cluster, o clustertest.Options, point string, tokens, drained int, prefix string, answers map[string]streamed) {
	victim, role := c.Nodes[1], cluster.RoleDecode
	if slices.Equal(o.Nodes[1].Roles, []string{"prefill"}) {
		role = cluster.RolePrefill
	}
	// Where a lease ended just as its node was restarted, the worker may have been moved
	// after it was back.
	waitBack(t, c, victim, role, o.Prefill, o.Decode)
	before := settledCounts(t, c)
	s := startStreams(t, c, prefix, 8, tokens)
	defer s.end()
	if err := victim.DieAt(point, 2); err != nil {
		t.Fatal(err)
	}
	var leaving string
	if drained > 0 {
		leaving = workerOf(t, c, c.Nodes[drained-1])
		drainUntilDead(t, c, leaving, victim)
	}
	waitDead(t, victim)
	s.goesOn("after the death of a process", 8)
	alone := s.next.Load()
	victim.Restart()
	if leaving != "" {
		if err := c.Client.Resume(t.Context(), leaving); err != nil {
			t.Fatal(err)
		}
	}
	waitBack(t, c, victim, role, o.Prefill, o.Decode)
	back := s.next.Load()
	s.goesOn("after the restart of a process", 4)
	got := s.end()
	counted(t, c, before, len(got))
	// Those that began while the process started met nothing; there are many.
	for n := alone + 1; n <= back; n++ {
		delete(got, freshPrompt(prefix, n))
	}
	t.Logf("%d of %d streams are compared", len(got), s.next.Load())
	maps.Copy(answers, got)
	c.WaitRest()
}

// workerOf is a decode worker of a node.
func workerOf(t *testing.T, c *clustertest.Cluster, n *clustertest.RunningNode) string {
	t.Helper()
	return workerIn(t, c, n, cluster.RoleDecode)
}

// workerIn is a worker of a node in a role.
func workerIn(t *testing.T, c *clustertest.Cluster, n *clustertest.RunningNode, role cluster.Role) string {
	t.Helper()
	for _, w := range c.Watch.View().Workers() {
		if w.Node == n.ID && w.Role == role {
			return w.Name
		}
	}
	t.Fatalf("no %s worker on %s", role, n.Name)
	return ""
}

// drainUntilDead drains and resumes a busy worker until the victim has died.
func drainUntilDead(t *testing.T, c *clustertest.Cluster, worker string, victim *clustertest.RunningNode) {
	t.Helper()
	dead := func() bool {
		select {
		case <-victim.Died():
			return true
		default:
			return false
		}
	}
	for try := 0; !dead(); try++ {
		if try == 10 {
			t.Fatalf("%d drains of %s did not reach the step", try, worker)
		}
		c.WaitView(worker+" is busy", func(client.View) bool {
			return dead() || slices.ContainsFunc(c.LiveStats(), func(st cluster.WorkerStatus) bool { return st.Name == worker && st.Stats.Running > 1 })
		})
		if err := c.Client.Drain(t.Context(), worker, time.Now().Add(time.Minute), false); err != nil {
			t.Fatal(err)
		}
		c.WaitView(worker+" is drained", func(v client.View) bool {
			return dead() || slices.ContainsFunc(v.Workers(), func(w cluster.Worker) bool { return w.Name == worker && w.State == cluster.StateDrained })
		})
		if dead() {
			return
		}
		if err := c.Client.Resume(t.Context(), worker); err != nil {
			t.Fatal(err)
		}
	}
}

// waitBack has a node that was restarted get a worker of a role again, and waits until it
// serves: the controller may have moved the old one elsewhere, and moves none back.
func waitBack(t *testing.T, c *clustertest.Cluster, n *clustertest.RunningNode, role cluster.Role, prefill, decode int) {
	t.Helper()
	serving := func() bool {
		return slices.ContainsFunc(c.LiveStats(), func(st cluster.WorkerStatus) bool { return st.Node == n.ID && st.Role == role })
	}
	settled := func(prefill, decode, encode int) {
		t.Helper()
		c.SetEncode(encode)
		c.Declare(prefill, decode)
		c.WaitView(fmt.Sprintf("%d prefill, %d decode and %d encode workers serve", prefill, decode, encode), func(v client.View) bool {
			all := v.Workers()
			return len(all) == prefill+decode+encode && !slices.ContainsFunc(all, func(w cluster.Worker) bool { return !w.State.Serving() })
		})
	}
	encode := c.Encode()
	settled(prefill, decode, encode)
	if serving() {
		return
	}
	switch role {
	case cluster.RolePrefill:
		settled(prefill-1, decode, encode)
	case cluster.RoleEncode:
		settled(prefill, decode, encode-1)
	default:
		settled(prefill, decode-1, encode)
	}
	settled(prefill, decode, encode)
	c.WaitView(n.Name+" has a worker again", func(client.View) bool { return serving() })
}

// streams are clients that ask one thing after the other, never the same twice: a prompt
// that is cached would not be prefilled.
type streams struct {
	t      *testing.T
	c      *clustertest.Cluster
	prefix string
	tokens int
	next   atomic.Int64
	over   atomic.Bool
	wg     sync.WaitGroup
	mu     sync.Mutex
	got    map[string]streamed
}

// streamed is an answer to a prompt, and how many tokens were asked for.
type streamed struct {
	clustertest.Answer
	tokens int
}

func startStreams(t *testing.T, c *clustertest.Cluster, prefix string, connections, tokens int) *streams {
	s := &streams{t: t, c: c, prefix: prefix, tokens: tokens, got: map[string]streamed{}}
	for range connections {
		s.wg.Go(func() {
			for !s.over.Load() {
				s.one()
			}
		})
	}
	return s
}

func (s *streams) one() {
	p := freshPrompt(s.prefix, s.next.Add(1))
	a, err := s.c.Complete(s.t.Context(), streamBody(p, s.tokens))
	if err != nil {
		s.over.Store(true)
		s.t.Errorf("stream %q: %v", p[:20], err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.got[p] = streamed{a, s.tokens}
}

func streamBody(prompt string, tokens int) clustertest.Body {
	return clustertest.Body{"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": true}
}

// freshPrompt differs from all others from its beginning on.
func freshPrompt(prefix string, n int64) string {
	r := rand.New(rand.NewPCG(uint64(n), 9))
	words := strings.Fields("the a worker block prefix token queue lease moves writes waits reads sends sees holds")
	p := fmt.Sprint(prefix, " ", n)
	for range 20 + r.IntN(30) {
		p += " " + words[r.IntN(len(words))]
	}
	return p
}

// end lets all streams come to their ends.
func (s *streams) end() map[string]streamed {
	s.over.Store(true)
	s.wg.Wait()
	return s.got
}

func (s *streams) ended() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.got)
}

// goesOn waits for so many more ends.
func (s *streams) goesOn(during string, n int) {
	s.t.Helper()
	from := s.ended()
	s.c.WaitView(fmt.Sprintf("%d more streams end %s", n, during), func(client.View) bool { return s.over.Load() || s.ended() >= from+n })
}

// compareUndisturbed asks all again where nothing happens.
func compareUndisturbed(t *testing.T, o clustertest.Options, answers map[string]streamed) {
	t.Helper()
	c := clustertest.Start(t, o)
	prompts := make(chan string)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for p := range prompts {
				got := answers[p]
				want, err := c.Complete(t.Context(), streamBody(p, got.tokens))
				if err != nil || got.Text != want.Text || got.Finish != want.Finish || got.Usage != want.Usage {
					t.Errorf("stream %q: got %q %s %+v, want %q %s %+v %v", p[:20], got.Text, got.Finish, got.Usage, want.Text, want.Finish, want.Usage, err)
				}
			}
		})
	}
	for p := range answers {
		prompts <- p
	}
	close(prompts)
	wg.Wait()
}
