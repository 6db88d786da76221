package clustertest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/dynctl/dynctl/internal/chat"
	"github.com/dynctl/dynctl/internal/cli"
	"github.com/dynctl/dynctl/internal/cli/term"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/clustertest"
	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/engine/cpu"
	"github.com/dynctl/dynctl/internal/engine/cpu/cputest"
	"github.com/dynctl/dynctl/internal/model"
	"github.com/dynctl/dynctl/internal/nixl/ucx"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/recall"
)

// fact is a question about a text, and where in the prompt the answer lies.
type fact struct {
	recall.Probe
	prompt      []uint32
	first, last int // blocks with the fact
}

const (
	recallTokens = 40 // of an answer, which is one sentence
	recallFacts  = 4 / slowdown
	recallTries  = 16
)

// facts are questions that the built-in model answers when one engine does everything.
func facts(t *testing.T, sentences int) []fact {
	t.Helper()
	dir, err := model.Builtin(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	run := cputest.New(t, dir, cpu.Options{BlockSize: blockSize})
	files := chat.Files{}
	for _, f := range run.Model.Files() {
		files[f.Name] = f.Data
	}
	proc, err := chat.Load(files)
	if err != nil {
		t.Fatal(err)
	}
	var out []fact
	tried := 0
	for seed := uint64(0); len(out) < recallFacts && tried < recallTries; seed++ {
		tried++
		f := fact{Probe: recall.Draw(rand.New(rand.NewPCG(seed, 20)), sentences, float64(seed%4)/4)}
		message, err := json.Marshal(map[string]string{"role": "user", "content": f.Prompt()})
		if err != nil {
			t.Fatal(err)
		}
		rendered, err := proc.RenderChat(t.Context(), []json.RawMessage{message}, nil, nil, true)
		if err != nil {
			t.Fatal(err)
		}
		f.prompt = proc.EncodeChat(rendered)
		at := strings.Index(rendered, f.Fact)
		begin, end := len(proc.EncodeChat(rendered[:at-1])), len(proc.EncodeChat(rendered[:at+len(f.Fact)]))
		f.first, f.last = begin/blockSize, (end-1)/blockSize
		said := run.Greedy(f.prompt, recallTokens)
		if stop := slices.IndexFunc(said, func(id uint32) bool { return slices.Contains(run.Model.EOS(), id) }); stop >= 0 && f.Right(proc.Decode(said[:stop])) {
			out = append(out, f)
		}
	}
	if len(out) < recallFacts {
		t.Fatalf("the built-in model recalls %d of %d facts even without a transfer", len(out), tried)
	}
	return out
}

// spoiler damages KV in decode workers of this process that came from elsewhere, before
// the first step that reads it.
type spoiler struct {
	mu   sync.Mutex
	left int // how many prompts to spoil, -1 for all
	done int
	// The blocks, as places in the block table of a prompt.
	first, last int
}

// arm has the blocks of a fact damaged when the next prompt is decoded whose KV came from
// elsewhere.
func (s *spoiler) arm(f fact) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left, s.done, s.first, s.last = 1, 0, f.first, f.last
}

// damageAll has all KV damaged that comes from elsewhere from now on.
func (s *spoiler) damageAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left, s.first, s.last = -1, 0, math.MaxInt-1
}

func (s *spoiler) spoiled() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.done
}

// around is put around the backends of a cluster.
func (s *spoiler) around(as cluster.Assignment, b engine.Backend) engine.Backend {
	if as.Role != cluster.RoleDecode {
		return b
	}
	return &spoiledBackend{Backend: b, s: s}
}

type spoiledBackend struct {
	engine.Backend
	s      *spoiler
	memory engine.KVPool
	next   map[int32]int // positions that the sequences of the last step have reached, by first block
}

func (b *spoiledBackend) AllocKV(n int) (engine.KVPool, error) {
	var err error
	b.memory, err = b.Backend.AllocKV(n)
	return b.memory, err
}

func (b *spoiledBackend) Step(ctx context.Context, batch []engine.BatchSeq) error {
	b.s.mu.Lock()
	next := map[int32]int{}
	for _, seq := range batch {
		b.spoil(seq)
		next[seq.Blocks[0]] = seq.Start + len(seq.Tokens)
	}
	b.next = next
	b.s.mu.Unlock()
	return b.Backend.Step(ctx, batch)
}

// spoil turns the sign of keys and values, if this step is the first of a prompt that
// somebody else has computed; the lock of the spoiler is held.
func (b *spoiledBackend) spoil(seq engine.BatchSeq) {
	shape := b.Info().KV
	if b.s.left == 0 || len(seq.Tokens) != 1 || seq.Start == b.next[seq.Blocks[0]] || seq.Start < shape.BlockSize {
		return
	}
	size, elem := int(shape.Rank(len(b.memory)).BlockBytes()), shape.ElemBytes()
	for _, block := range seq.Blocks[b.s.first:min(b.s.last+1, seq.Start/shape.BlockSize)] {
		for _, rank := range b.memory {
			kv := rank.Bytes()[int(block)*size:][:size]
			for i := elem - 1; i < size; i += elem {
				kv[i] ^= 0x80
			}
		}
	}
	b.s.left--
	b.s.done++
}

// A fact lies in blocks that a prefill worker computed, and the decode worker answers the
// question about it: whatever carried the blocks there, and whoever decided. Where they
// are damaged on the way, the answer is wrong: it comes from these blocks.
func TestRecall(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("what is computed, by the ways that shorter tests take, too")
	}
	known := facts(t, 16)
	two := []clustertest.Node{{Roles: []string{"decode"}}, {Roles: []string{"prefill"}, Process: true}}
	for _, tc := range []struct {
		transport string
		nodes     []clustertest.Node
		linux     bool
	}{
		{transport: "local"},
		{transport: "shm", nodes: two, linux: true},
		{transport: "cma", nodes: two, linux: true},
		{transport: ucx.Name},
		{transport: "tcp"},
	} {
		t.Run(tc.transport, func(t *testing.T) {
			if err := ucx.Available(); tc.transport == ucx.Name && err != nil {
				t.Skip(err)
			}
			if tc.linux && runtime.GOOS != "linux" {
				t.Skip("a transport of Linux")
			}
			s := &spoiler{}
			c := clustertest.Start(t, clustertest.Options{
				Prefill: 1, Decode: 1, Nodes: tc.nodes, Backend: s.around,
				Engine: cluster.EngineSpec{BlockSize: blockSize, KVBlocks: 256},
				Config: func(cfg *config.Dynamod) { cfg.NIXL.Transports = []string{tc.transport} },
			})
			c.WaitRemotePrefill()
			for i, strategy := range strategies {
				c.Set(strategy.settings)
				c.WaitWay(strategy.way)
				for k, f := range known {
					if k%2 != i%2 { // two strategies together ask for all
						continue
					}
					recalled(t, c, f, strategy.way)
					s.arm(f)
					c.ClearCaches()
					if got := question(t, c, f); f.Right(got.Text) || s.spoiled() != 1 {
						t.Errorf("%s: blocks %d to %d were damaged %d times, and %q was answered %q", strategy.way, f.first, f.last, s.spoiled(), f.Question, got.Text)
					}
				}
			}
			wantTransport(t, c, tc.transport)
		})
	}
}

// recalled asks a question when nobody has its text in a cache, and again when the decode
// worker has what came from the prefill worker.
func recalled(t *testing.T, c *clustertest.Cluster, f fact, way protocol.PrefillWay) {
	t.Helper()
	c.ClearCaches()
	before := c.Ways()[way]
	for round, what := range []string{"after a transfer", "from the cache"} {
		got := question(t, c, f)
		if !f.Right(got.Text) {
			t.Errorf("%s, %s: %q answered %q, want %s", way, what, f.Question, got.Text, f.Answer)
		}
		if known := got.Cached > f.last*blockSize; known != (round == 1) {
			t.Errorf("%s, %s: %d tokens were cached, the fact ends in block %d", way, what, got.Cached, f.last)
		}
		if n := c.Ways()[way] - before; round == 0 && n != 1 {
			t.Errorf("%d prompts came by %s, want 1", n, way)
		}
	}
}

// question asks for a fact.
func question(t *testing.T, c *clustertest.Cluster, f fact) clustertest.Answer {
	t.Helper()
	got, err := c.Complete(t.Context(), clustertest.Body{"prompt": f.prompt, "max_tokens": recallTokens, "temperature": 0})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// dynctl doctor tells sound transfers from damaged ones by what the model answers.
func TestDoctorFindsDamagedKV(t *testing.T) {
	if patience.RaceDetector {
		t.Skip("what it adds to other tests only computes")
	}
	t.Parallel()
	facts(t, 16)
	s := &spoiler{}
	c := clustertest.Start(t, clustertest.Options{
		Prefill: 1, Decode: 1, Backend: s.around, Engine: cluster.EngineSpec{BlockSize: blockSize, KVBlocks: 512},
	})
	c.WaitRemotePrefill()
	doctor := func() (code int, statuses string) {
		code, all := modelCheck(t, c)
		return code, strings.Join(all, ", ")
	}
	if code, got := doctor(); got != "recall-local worker-2 ok, recall worker-2 ok, recall worker-1 worker-2 ok" {
		t.Errorf("sound: exit %d, %s", code, got)
	}
	s.damageAll()
	if code, got := doctor(); code != 1 || got != "recall-local worker-2 ok, recall worker-2 fail, recall worker-1 worker-2 fail" {
		t.Errorf("damaged: exit %d, %s", code, got)
	}
}

// modelCheck runs dynctl doctor --model-check and returns the names and statuses of what it
// found out about answers.
func modelCheck(t *testing.T, c *clustertest.Cluster) (code int, statuses []string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code = cli.Main(t.Context(), []string{
		"doctor", "--model-check", "-o", "json", "--cluster", "test", "--etcd-endpoints", c.EtcdAddr, "--nats-url", c.NATSURL(), "--state-dir", t.TempDir(), "--secret-file", c.SecretFile, "--timeout", "30s",
	}, cli.Env{Streams: term.Streams{In: strings.NewReader(""), Out: &stdout, Err: &stderr}, Environ: []string{"HOME=" + t.TempDir()}, Dir: t.TempDir()})
	var d struct {
		Checks []struct{ Name, Group, Status, Found string }
	}
	if err := json.Unmarshal(stdout.Bytes(), &d); err != nil {
		t.Fatalf("%v\n%s%s", err, stdout.String(), stderr.String())
	}
	for _, f := range d.Checks {
		if f.Group == "model" {
			statuses = append(statuses, f.Name+" "+f.Status)
			t.Log(f.Found)
		}
	}
	return code, statuses
}
