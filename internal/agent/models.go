package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/dynctl/dynctl/internal/chat"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/engine/cpu"
	"github.com/dynctl/dynctl/internal/model"
	"github.com/dynctl/dynctl/internal/worker"
)

// models shares loaded weights. Workers of the same model on the same device use one
// copy, which is released with the last of them.
type models struct {
	a *Agent
	// memory returns the host memory that can be allocated, and the total, in bytes; 0 if
	// unknown.
	memory func() (free, most int64)

	planning sync.Mutex // held while the memory of a worker is found and taken
	mu       sync.Mutex
	shared   map[modelKey]*sharedModel
	holdings map[*holding]bool
}

// modelKey identifies loaded weights. A model's weights in several formats have different
// keys, as has its vision tower alone, and the mock backend needs no weights.
type modelKey struct {
	dir, device, quantize string
	builtin               string // name of a built-in model, else empty
	mock, tower           bool
}

// builtins are the built-in models by name.
var builtins = map[string]model.BuiltinModel{cluster.BuiltinModelName: model.BuiltinText, cluster.BuiltinVisionName: model.BuiltinVision}

type sharedModel struct {
	refs    int
	once    sync.Once // loads
	model   *model.Model
	weights weights // nil for the mock backend
	text    *chat.Processor
	err     error

	// bytes is what the weights take of the memory of the device, and later what the vision
	// tower takes of the host's once an image comes, which adds it to bytes.
	bytes, later atomic.Int64
}

func newModels(a *Agent) *models {
	return &models{
		a: a, shared: map[modelKey]*sharedModel{}, holdings: map[*holding]bool{},
		memory: func() (int64, int64) { now := thisMachine.Memory(); return now.Usable(), now.Most() },
	}
}

// read opens a model. It writes a built-in model at first use. For a key of a vision
// tower the model must have one.
func (m *models) read(key modelKey) (*model.Model, error) {
	if key.builtin != "" {
		if _, err := builtins[key.builtin].Write(m.a.cfg.StateDir); err != nil {
			return nil, fmt.Errorf("write the built-in model: %w", err)
		}
	}
	mod, err := model.Open(key.dir, model.Options{Log: m.a.log, Quantize: key.quantize})
	if err != nil || !key.tower {
		return mod, err
	}
	return mustSee(mod)
}

// load returns a backend over shared weights for an assignment.
func (m *models) load(ctx context.Context, as cluster.Assignment, progress func(float64)) (*worker.Loaded, error) {
	device, err := m.usable(as)
	if err != nil {
		return nil, err
	}
	key := m.keyOf(as)
	sm, err := m.shareOf(ctx, key, device, progress)
	if err != nil {
		return nil, err
	}
	progress(0.5)
	m.planning.Lock() // so that two workers do not claim the same memory
	defer m.planning.Unlock()
	loaded, err := m.backend(ctx, as, sm)
	if err != nil {
		m.release(key, sm)
		return nil, err
	}
	letGo := m.hold(holding{as.Name, as.Device, key, int64(cmp.Or(loaded.LeastBlocks, loaded.Blocks)) * loaded.Backend.Info().KV.BlockBytes()})
	loaded.Release = sync.OnceFunc(func() { letGo(); m.release(key, sm) })
	progress(1)
	return loaded, nil
}

// keyOf returns the key of the weights that an assignment uses.
func (m *models) keyOf(as cluster.Assignment) modelKey {
	key := modelKey{dir: as.Model.Path, device: as.Device, quantize: as.Model.Quantize, tower: !as.Role.HoldsKV()}
	if key.builtin = as.Model.Builtin(); key.builtin != "" {
		key.dir = builtins[key.builtin].Dir(m.a.cfg.StateDir)
	}
	if as.Engine.Backend == cluster.BackendMock {
		key.quantize, key.mock = "", true
	}
	return key
}

// shareOf returns the weights of a key with one more reference. The first caller loads
// them.
func (m *models) shareOf(ctx context.Context, key modelKey, device computer, progress func(float64)) (*sharedModel, error) {
	for {
		sm := m.acquire(key)
		sm.once.Do(func() { sm.err = m.open(ctx, sm, key, device, progress) })
		if sm.err == nil {
			return sm, nil
		}
		m.release(key, sm)
		// The worker that loaded the model may have been stopped; the others load it
		// again.
		if !errors.Is(sm.err, errLoadEnded) || ctx.Err() != nil {
			return nil, sm.err
		}
	}
}

// errLoadEnded is returned when the worker that loaded the weights was stopped.
var errLoadEnded = errors.New("the worker that loaded the model was stopped")

// open loads weights.
func (m *models) open(ctx context.Context, sm *sharedModel, key modelKey, device computer, progress func(float64)) (err error) {
	if sm.model, err = m.read(key); err != nil {
		return err
	}
	if key.mock {
		sm.text, err = processor(sm.model)
		return err
	}
	tower := towerBytes(device, sm.model)
	if key.tower {
		err = admitTower(device, sm.model, key, occupied{}, m.hostRoom())
	} else {
		err = m.roomFor(sm.model, device.hostBytes(sm.model), tower)
	}
	if err != nil {
		return err
	}
	cache := model.Cache{Dir: m.quantizedDir(), Log: m.a.log, Progress: func(done float64) { progress(done / 2) }}
	if err := sm.model.Prepare(ctx, cache); err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("%w: %w", errLoadEnded, err)
		}
		return err
	}
	load := device.load
	if key.tower {
		load = device.loadTower
	}
	if sm.weights, err = load(ctx, sm.model); err != nil {
		return err
	}
	if !key.tower {
		sm.bytes.Store(device.weightBytes(sm.model))
	}
	sm.later.Store(tower)
	sm.text, err = processor(sm.model)
	return err
}

// quantizedDir returns the directory of weights that this node quantized.
func (m *models) quantizedDir() string { return filepath.Join(m.a.cfg.StateDir, "models", "quantized") }

// roomFor fails when the copies of a model's weights do not fit into memory: weights
// whose rows were reordered, and weights packed for the device, at once or, those of its vision
// tower, for the first image, all about as large as in the file. Mapped weights do not count: the
// system drops and reads them as needed.
func (m *models) roomFor(mod *model.Model, packed, tower int64) error {
	ordered := mod.CopiedBytes()
	free, _ := m.memory()
	if free > 0 {
		free = max(free-m.occupied("cpu:", "", modelKey{}).later, 1)
	}
	need := ordered + packed + tower
	if free <= 0 || need <= free {
		return nil
	}
	advice := "use a smaller model, or a file with smaller weights"
	if ordered <= free {
		advice = "read them in place, slower: --cpu-isa portable"
	}
	return noMemory("reordered and packed copies of the weights of %s need %s%s, %s are free; %s", mod.Dir(), gib(need), withTower(tower), gib(free), advice)
}

// processor loads the model's tokenizer and templates, which constraints need. It also
// proves that frontends can use the model's files: a broken tokenizer fails the worker's
// start, not a later request.
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
		return nil, fmt.Errorf("model %s: the tokenizer has %d tokens, the model %d: use the tokenizer of this model", m.Dir(), n, m.Config().Vocab)
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

// release gives one reference back. A model that could not be loaded is forgotten, so
// that the next start tries again.
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
		if err := sm.weights.close(context.Background()); err != nil { // its waits are bounded
			m.a.log.Warn("weights not freed", "model", key.dir, "error", err)
		}
	}
	if sm.model != nil {
		if err := sm.model.Close(); err != nil {
			m.a.log.Warn("model not closed", "model", key.dir, "error", err)
		}
	}
}

// engineSpec fills unset fields of an assignment from the node's configuration.
func (m *models) engineSpec(spec cluster.EngineSpec) cluster.EngineSpec {
	node := m.a.cfg.Engine.Spec()
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
	fill(&spec.TensorParallel, node.TensorParallel)
	spec.ITLTargetMS = cmp.Or(spec.ITLTargetMS, node.ITLTargetMS)
	if spec.Speculative.Method == "" {
		spec.Speculative = node.Speculative
	}
	return spec
}

const (
	// poolShare is the divisor of the available memory for one worker's KV pool if the
	// user sets no size, within the limits below.
	poolShare     = 16
	poolMaxBlocks = 4096
	poolMaxBytes  = 2 << 30
)

// ErrMemory is returned when weights or a KV pool do not fit into the node's memory.
var ErrMemory = errors.New("not enough memory")

func noMemory(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrMemory}, args...)...)
}

// poolSize returns the number of blocks of a KV pool. free is in bytes, 0 if unknown.
// wish is the requested number, 0 for none. Without a wish the pool takes a share of the
// free memory, but at least one full context as long as that is within poolMaxBlocks.
func poolSize(wish int, blockBytes int64, maxContext, blockSize int, free int64) (int, error) {
	if wish > 0 {
		if free > 0 && int64(wish) > free/blockBytes { // the product could overflow
			return 0, noMemory("%d KV blocks need %s, %s are free; use fewer: --kv-blocks %d",
				wish, gibs(float64(wish)*float64(blockBytes)), gib(free), max(free/2/blockBytes, 1))
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
		return 0, noMemory("one context of %d tokens needs %s of KV blocks, %s are free; limit it: --max-model-len, --kv-blocks",
			maxContext, gib(int64(n)*blockBytes), gib(free))
	}
	return n, nil
}

func gib(n int64) string { return gibs(float64(n)) }

func gibs(bytes float64) string {
	if bytes < 1<<30 {
		return fmt.Sprintf("%.1f MiB", bytes/(1<<20))
	}
	return fmt.Sprintf("%.1f GiB", bytes/(1<<30))
}
