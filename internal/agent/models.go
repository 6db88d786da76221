package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/dynctl/dynctl/internal/chat"
	"github.com/dynctl/dynctl/internal/chat/parse"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/engine/cpu"
	"github.com/dynctl/dynctl/internal/model"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/worker"
)

// models shares loaded weights: workers of the same model on the same device use
// one copy, which is released with the last of them.
type models struct {
	a    *Agent
	free func() int64 // memory that can be allocated, in bytes; 0: unknown

	mu     sync.Mutex
	shared map[modelKey]*sharedModel
}

type modelKey struct{ dir, device string }

type sharedModel struct {
	refs    int
	once    sync.Once // loads
	model   *model.Model
	weights *cpu.Weights
	text    *chat.Processor
	err     error
}

func newModels(a *Agent) *models {
	return &models{a: a, free: func() int64 { return thisMachine.Memory().Usable() }, shared: map[modelKey]*sharedModel{}}
}

// dir is the directory or file of a model; the built-in one is written at first use.
func (m *models) dir(spec cluster.ModelSpec) (string, error) {
	if spec.Path != "" {
		return spec.Path, nil
	}
	dir, err := model.Builtin(m.a.cfg.StateDir)
	if err != nil {
		return "", fmt.Errorf("write the built-in model: %w", err)
	}
	return dir, nil
}

// load returns a backend over shared weights for an assignment.
func (m *models) load(_ context.Context, as cluster.Assignment, progress func(float64)) (*worker.Loaded, error) {
	device := m.a.devices[as.Device]
	if device == nil {
		return nil, fmt.Errorf("this node has no device %q", as.Device)
	}
	if err := errors.Join(parse.CheckTool(as.Model.ToolParser), parse.CheckReasoning(as.Model.ReasoningParser)); err != nil {
		return nil, err
	}
	dir, err := m.dir(as.Model)
	if err != nil {
		return nil, err
	}
	key := modelKey{dir, as.Device}
	sm := m.acquire(key)
	sm.once.Do(func() {
		if sm.model, sm.err = model.Open(dir, model.Options{Log: m.a.log}); sm.err == nil {
			sm.err = m.roomFor(sm.model, device.CopyBytes(sm.model))
		}
		if sm.err == nil {
			sm.weights, sm.err = device.Load(sm.model)
		}
		if sm.err == nil {
			sm.text, sm.err = processor(sm.model)
		}
	})
	if sm.err != nil {
		m.release(key, sm)
		return nil, sm.err
	}
	progress(0.5)
	loaded, err := m.backend(as, sm)
	if err != nil {
		m.release(key, sm)
		return nil, err
	}
	loaded.Release = sync.OnceFunc(func() { m.release(key, sm) })
	progress(1)
	return loaded, nil
}

// roomFor fails when the copies of a model's weights do not fit into memory: those
// that are float32 now, and those that are packed for the device. Mapped weights need
// none: the system drops and reads them as it likes.
func (m *models) roomFor(mod *model.Model, packed int64) error {
	converted, free := mod.CopiedBytes(), m.free()
	if free <= 0 || converted+packed <= free {
		return nil
	}
	advice := "read them in place, slower: --cpu-isa portable"
	if converted > 0 {
		advice = "use a smaller model, or a file with F16 or BF16 weights"
	}
	return fmt.Errorf("%w: the weights of %s need %s beside their files, as float32 and packed, %s are free; %s", ErrMemory, mod.Dir(), gib(converted+packed), gib(free), advice)
}

// processor loads what turns the model's tokens into text, which constraints need. It
// proves that frontends will be able to use the model's files too: a broken tokenizer
// fails here, with its worker, and not later without one.
func processor(m *model.Model) (*chat.Processor, error) {
	files := chat.Files{}
	for _, f := range m.Files() {
		files[f.Name] = f.Data
	}
	p, err := chat.Load(files)
	if err != nil {
		return nil, fmt.Errorf("model %s: %w", m.Dir(), err)
	}
	if n := p.VocabSize(); n > m.Config().Vocab {
		return nil, fmt.Errorf("model %s: the tokenizer has %d tokens, the model %d: they do not belong together", m.Dir(), n, m.Config().Vocab)
	}
	return p, nil
}

func (m *models) acquire(key modelKey) *sharedModel {
	m.mu.Lock()
	defer m.mu.Unlock()
	sm := m.shared[key]
	if sm == nil {
		sm = &sharedModel{}
		m.shared[key] = sm
	}
	sm.refs++
	return sm
}

// release gives one reference back. A model that could not be loaded is
// forgotten, so that the next start tries again.
func (m *models) release(key modelKey, sm *sharedModel) {
	m.mu.Lock()
	defer m.mu.Unlock()
	sm.refs--
	if sm.err != nil && m.shared[key] == sm {
		delete(m.shared, key)
	}
	if sm.refs > 0 {
		return
	}
	if m.shared[key] == sm {
		delete(m.shared, key)
	}
	if sm.weights != nil {
		if err := sm.weights.Close(); err != nil {
			m.a.log.Warn("packed weights not freed", "model", key.dir, "error", err)
		}
	}
	if sm.model != nil {
		if err := sm.model.Close(); err != nil {
			m.a.log.Warn("model not closed", "model", key.dir, "error", err)
		}
	}
}

func (m *models) backend(as cluster.Assignment, sm *sharedModel) (*worker.Loaded, error) {
	spec := m.engineSpec(as.Engine)
	b, err := sm.weights.NewBackend(cpu.Options{BlockSize: spec.BlockSize, MaxContext: spec.MaxModelLen, KVDType: spec.KVDType})
	if err != nil {
		return nil, err
	}
	blocks, err := poolSize(spec.KVBlocks, b.Info().KV.BlockBytes(), b.Info().MaxContext, spec.BlockSize, m.free())
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	loaded := &worker.Loaded{
		Backend: b, Blocks: blocks,
		Card: cluster.ModelCard{
			DisplayName: as.Model.Name, Digest: sm.model.Digest(), HashSeed: cluster.DefaultHashSeed,
			ModelType: "Chat | Completions", ModelInput: "Tokens",
		},
		Files: map[string][]byte{},
		Constrain: func(ctx context.Context, g protocol.Guided) (engine.Constraint, error) {
			return sm.text.NewConstraint(ctx, g)
		},
	}
	for _, f := range sm.model.Files() {
		loaded.Card.Files = append(loaded.Card.Files, cluster.CardFile{Name: f.Name, SHA256: f.SHA256, Size: f.Size})
		loaded.Files[f.Name] = f.Data
	}
	return loaded, nil
}

// engineSpec fills what an assignment leaves open from the node's configuration.
func (m *models) engineSpec(spec cluster.EngineSpec) cluster.EngineSpec {
	node := m.a.cfg.Engine
	fill := func(v *int, others ...int) {
		for _, o := range others {
			if *v == 0 {
				*v = o
			}
		}
	}
	fill(&spec.KVBlocks, node.KVBlocks)
	fill(&spec.BlockSize, node.BlockSize, cluster.DefaultBlockSize)
	spec.KVDType = cmp.Or(spec.KVDType, node.KVDType, cpu.KVAuto)
	fill(&spec.MaxSeqs, node.MaxSeqs)
	fill(&spec.MaxBatchTokens, node.MaxBatchTokens)
	return spec
}

const (
	// poolShare of the available memory goes to one worker's KV pool when nobody
	// says how large it shall be, within the limits below.
	poolShare     = 16
	poolMaxBlocks = 4096
	poolMaxBytes  = 2 << 30
)

// ErrMemory is returned when a KV pool does not fit into the node's memory.
var ErrMemory = errors.New("not enough memory")

// poolSize returns the number of blocks of a KV pool, given how many bytes are free
// (0: unknown). Without a wish it is a share of the free memory, but at least one
// full context as long as that is within poolMaxBlocks.
func poolSize(wish int, blockBytes int64, maxContext, blockSize int, free int64) (int, error) {
	if wish > 0 {
		if need := int64(wish) * blockBytes; free > 0 && need > free {
			return 0, fmt.Errorf("%w: %d KV blocks need %s, %s are free; use fewer: --kv-blocks %d",
				ErrMemory, wish, gib(need), gib(free), max(free/2/blockBytes, 1))
		}
		return wish, nil
	}
	context := (maxContext + blockSize - 1) / blockSize
	bytes := int64(poolMaxBytes)
	if free > 0 {
		bytes = min(bytes, free/poolShare)
	}
	n := int(min(bytes/blockBytes, poolMaxBlocks))
	if n = max(n, min(context, poolMaxBlocks)); free > 0 && int64(n)*blockBytes > free {
		return 0, fmt.Errorf("%w: one context of %d tokens needs %s of KV blocks, %s are free; limit it: --max-model-len, --kv-blocks",
			ErrMemory, maxContext, gib(int64(n)*blockBytes), gib(free))
	}
	return n, nil
}

func gib(n int64) string { return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30)) }
