package clustertest_test

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/dynctl/dynctl/internal/chat"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/clustertest"
	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/engine/cpu"
	"github.com/dynctl/dynctl/internal/engine/cpu/cputest"
	"github.com/dynctl/dynctl/internal/model"
	"github.com/dynctl/dynctl/internal/nixl/ucx"
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
	recallFacts  = 4
)

// facts are questions that the built-in model answers when one engine does everything.
func facts(t *testing.T) []fact {
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
	for seed := uint64(0); len(out) < recallFacts && tried < 4*recallFacts; seed++ {
		tried++
		f := fact{Probe: recall.Draw(rand.New(rand.NewPCG(seed, 20)), 16, float64(seed%4)/4)}
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
		t.Skipf("the built-in model recalls %d of %d facts even without a transfer", len(out), tried)
	}
	return out
}

// spoiler damages KV in a decode worker of this process, after it came there and before
// the first step that reads it.
type spoiler struct {
	mu    sync.Mutex
	start int  // of the step to spoil: the position of the last token of the prompt
	fact  fact // zero: nothing is spoiled
	done  int  // how often
}

// arm has the blocks of a fact damaged when its prompt is next decoded.
func (s *spoiler) arm(f fact) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.start, s.fact, s.done = len(f.prompt)-1, f, 0
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
	memory engine.KVMemory
}

func (b *spoiledBackend) AllocKV(n int) (engine.KVMemory, error) {
	var err error
	b.memory, err = b.Backend.AllocKV(n)
	return b.memory, err
}

func (b *spoiledBackend) Step(ctx context.Context, batch []engine.BatchSeq) error {
	for _, seq := range batch {
		b.spoil(seq)
	}
	return b.Backend.Step(ctx, batch)
}

// spoil turns the sign of every key and value of the fact.
func (b *spoiledBackend) spoil(seq engine.BatchSeq) {
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	if b.s.fact.prompt == nil || seq.Start != b.s.start || len(seq.Tokens) != 1 {
		return
	}
	shape := b.Info().KV
	size, elem := int(shape.BlockBytes()), shape.ElemBytes()
	for _, block := range seq.Blocks[b.s.fact.first : b.s.fact.last+1] {
		kv := b.memory.Bytes()[int(block)*size:][:size]
		for i := elem - 1; i < size; i += elem {
			kv[i] ^= 0x80
		}
	}
	b.s.fact = fact{}
	b.s.done++
}

// A fact lies in blocks that a prefill worker computed, and the decode worker answers the
// question about it: whatever carried the blocks there, and whoever decided. Where they
// are damaged on the way, the answer is wrong: it comes from these blocks.
func TestRecall(t *testing.T) {
	known := facts(t)
	two := []clustertest.Node{{Roles: []string{"decode"}}, {Roles: []string{"prefill"}, Process: true}}
	for _, tc := range []struct {
		transport string
		nodes     []clustertest.Node
		linux     bool
	}{
		{transport: "local"},
		{transport: "shm", nodes: two, linux: true},
		{transport: "pvm", nodes: two, linux: true},
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
			for _, strategy := range strategies {
				c.Set(strategy.settings)
				c.WaitWay(strategy.way)
				for _, f := range known {
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
