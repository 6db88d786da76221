package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/runtime"
	"github.com/dynctl/dynctl/internal/undo"
	"github.com/dynctl/dynctl/internal/worker/kv"
	"github.com/dynctl/dynctl/internal/worker/media"
	"github.com/dynctl/dynctl/internal/worker/role"
)

// builtin is the core with the built-in engine: the model on its device, the KV plane and the
// engine over both.
type builtin struct {
	loaded *Loaded
	info   engine.BackendInfo
	kv     *kv.Plane
	media  *media.Plane
	images bool // the model takes images
	engine *engine.Engine
	spec   cluster.EngineSpec
}

// newBuiltin brings up KV pool, data plane and engine. What it has begun is released by back.
func (w *Worker) newBuiltin(ctx context.Context, loaded *Loaded, back *undo.Stack) (*builtin, error) {
	c := &builtin{loaded: loaded, info: loaded.Backend.Info(), spec: w.cfg.Assignment.Engine}
	w.board.update(func(st *cluster.WorkerStatus) { st.TensorParallel = c.info.TensorParallel })
	back.Push("release the model", func(context.Context) error {
		err := loaded.Backend.Close()
		loaded.Release()
		return err
	})
	mem, err := w.allocate(loaded, c.info.KV.BlockBytes())
	if err != nil {
		return nil, err
	}
	inUse := false
	back.Push("free the KV pool", func(context.Context) error {
		if inUse {
			return errors.New("a stopped process may still write into it: it stays mapped")
		}
		return mem.Close()
	})
	w.setState(cluster.StateWarming, "")
	if err := warmUp(ctx, loaded.Backend, c.info.VocabSize); err != nil {
		return nil, err
	}
	c.kv, err = kv.Open(kv.Config{
		Worker: w.Name(), Namespace: w.cfg.Namespace, Store: w.cfg.Store, NIXL: w.cfg.NIXL(), Log: w.log,
		Model: loaded.Card.Digest, HashSeed: loaded.Card.HashSeed, Shape: c.info.KV, Blocks: loaded.Blocks, Memory: mem,
		Proof: w.waits.proof,
	})
	if err != nil {
		return nil, err
	}
	back.Push("free the memory for embeddings", func(context.Context) error {
		if c.media == nil || inUse {
			return nil
		}
		return c.media.Close()
	})
	back.Push("close the NIXL agent", func(context.Context) error {
		err := c.kv.Close()
		inUse = err != nil
		return err
	})
	if c.media, err = w.newMedia(c); err != nil {
		return nil, err
	}
	back.Push("end encoding", func(context.Context) error {
		c.media.Stop() // before weights and memory go
		return nil
	})
	if c.engine, err = w.newEngine(loaded); err != nil {
		return nil, fmt.Errorf("start engine: %w", err)
	}
	return c, nil
}

// allocate makes the memory of the KV pool.
func (w *Worker) allocate(loaded *Loaded, blockBytes int64) (engine.KVPool, error) {
	mem, err := loaded.Backend.AllocKV(loaded.Blocks)
	if err != nil {
		return nil, fmt.Errorf("allocate %d KV blocks of %d bytes: %w", loaded.Blocks, blockBytes, err)
	}
	w.board.update(func(st *cluster.WorkerStatus) {
		st.MemoryBytes, st.BlockBytes = int64(cmp.Or(loaded.LeastBlocks, loaded.Blocks))*blockBytes, blockBytes
	})
	return mem, nil
}

func (w *Worker) newMedia(c *builtin) (*media.Plane, error) {
	cfg := media.Config{Worker: w.Name(), KV: c.kv, Encoder: c.loaded.Encoder, Encode: w.cfg.Encode, Sizes: w.cfg.Embeddings, Log: w.log, Encoded: w.encodings.put}
	if c.images = c.loaded.Embedding > 0; c.images {
		cfg.Width = c.loaded.Embedding
	}
	return media.Open(cfg)
}

func (w *Worker) newEngine(loaded *Loaded) (*engine.Engine, error) {
	spec := w.cfg.Assignment.Engine
	return engine.New(engine.Config{
		NumBlocks: loaded.Blocks, MaxSeqs: spec.MaxSeqs, MaxBatchTokens: spec.MaxBatchTokens,
		ITLTarget: time.Duration(spec.ITLTargetMS) * time.Millisecond, Speculative: spec.Speculative, Observe: w.meters.step,
		MaxModelLen: spec.MaxModelLen, HashSeed: loaded.Card.HashSeed, Sink: w.events, Log: w.log,
	}, loaded.Backend)
}

// warmUp proves that the backend computes, twice the same, before anyone relies
// on it. It uses block 0 of the still empty pool.
func warmUp(ctx context.Context, b engine.Backend, vocabulary int) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var logits [2][]float32
	for i := range logits {
		logits[i] = make([]float32, vocabulary)
		err := b.Step(ctx, []engine.BatchSeq{{Tokens: []uint32{0, 1, 2}, Blocks: []int32{0}, Logits: logits[i]}})
		if err != nil {
			return fmt.Errorf("warm up: %w", err)
		}
	}
	for i, l := range logits[0] {
		if math.Float32bits(l) != math.Float32bits(logits[1][i]) {
			return fmt.Errorf("warm up: the same step gave two results for token %d: %v and %v", i, l, logits[1][i])
		}
	}
	return nil
}

func (c *builtin) run(ctx context.Context) error { return c.engine.Run(ctx) }

func (c *builtin) begin(ctx context.Context, t *term) (err error) {
	if t.peers, err = c.kv.Follow(ctx); err != nil {
		return err
	}
	if c.images {
		if t.images, err = c.media.NewFinder(ctx, t, t.peers, t.meter, t.role == cluster.RoleEncode); err != nil {
			return err
		}
	}
	t.duty, err = t.kind.New(ctx, &role.Term{
		Host: t, Worker: t.cfg.Assignment.Name, Taints: t.cfg.Taints, Log: t.log, Meter: t.meter,
		Engine: c.engine, KV: c.kv, Media: c.media, Images: t.images, Model: role.Model{Digest: c.loaded.Card.Digest, Constrain: c.loaded.Constrain},
		Peers: t.peers, Queue: t.cfg.Queue, Bus: t.cfg.Bus, Settings: t.cfg.Settings, QueueDepth: t.cfg.QueueDepth,
		Limits: &t.waits.handovers, Ending: ctx.Done(),
	})
	if err != nil {
		return err
	}
	listening, hush := context.WithCancel(ctx)
	t.hush = hush
	t.listening.Go(func() { c.kv.Listen(listening, t.duty) })
	return nil
}

func (c *builtin) forget(t *term) { t.peers.ForgetAll() }

func (c *builtin) model() (cluster.ModelCard, map[string][]byte) {
	return c.loaded.Card, c.loaded.Files
}

func (c *builtin) describe(card *cluster.ModelCard) {
	st := c.engine.Stats()
	card.ContextLength, card.BlockSize = c.engine.MaxModelLen(), c.kv.BlockSize()
	rt := &card.Runtime
	rt.TotalKVBlocks, rt.MaxNumSeqs, rt.MaxBatchTokens = st.KVTotal, st.MaxSeqs, c.spec.MaxBatchTokens
	rt.KVDType, rt.KVBlockBytes, rt.TensorParallel = c.info.KV.DType, c.kv.BlockBytes(), c.info.TensorParallel
}

func (c *builtin) figures(as cluster.Role) cluster.WorkerStats {
	st := c.engine.Stats()
	c.kv.Figures(&st)
	c.media.Figures(&st, !as.HoldsKV()) // an engine without KV is there for form
	return st
}

func (c *builtin) canary(check HealthCheck) *runtime.Canary {
	return &runtime.Canary{Probe: c.engine.Probe, Progress: c.engine.Progress, Wait: check.Wait, Timeout: check.Timeout, Proven: true}
}

func (c *builtin) agent() *nixl.Agent { return c.kv.Agent() }

func (c *builtin) stopAdmission(ctx context.Context) error   { return c.engine.StopAdmission(ctx) }
func (c *builtin) resumeAdmission(ctx context.Context) error { return c.engine.ResumeAdmission(ctx) }

func (c *builtin) open(ctx context.Context, limit int) ([]cluster.OpenSequence, int, error) {
	return c.engine.OpenSequences(ctx, limit)
}

func (c *builtin) awaited() int {
	st := c.engine.Stats()
	return max(st.RemoteWait, st.KVIncoming)
}

func (c *builtin) moving(context.Context) (in, out int) {
	in, out = c.kv.Agent().InFlight()
	return in, out + c.engine.Stats().KVOutgoing
}

func (c *builtin) clear(ctx context.Context) (int, error) { return c.engine.ClearCache(ctx) }

func (c *builtin) resident(ctx context.Context, at func()) ([]uint64, error) {
	return c.engine.Resident(ctx, at)
}

func (c *builtin) activity(ctx context.Context, limit int) (cluster.Activity, error) {
	var a cluster.Activity
	var err error
	if a.Sequences, a.SequencesTotal, err = c.engine.Sequences(ctx, limit); err != nil {
		return a, err
	}
	for i := range a.Sequences {
		a.Sequences[i].RequestID = requestOf(a.Sequences[i].ID)
	}
	a.Transfers, a.TransfersTotal = c.kv.Movements(limit)
	for i := range a.Transfers {
		a.Transfers[i].RequestID = requestOf(a.Transfers[i].RequestID)
	}
	a.At = time.Now()
	return a, nil
}

func (c *builtin) server() *cluster.ServerStatus { return nil }

func (c *builtin) paths(peer string) []cluster.Path { return c.kv.Paths(peer) }

func (c *builtin) sleeper() sleeper { return sleepless{} }

// sleepless is the sleeper of the built-in engine: a drain gives its memory back.
type sleepless struct{}

var errSleepless = errors.New("the built-in engine does not sleep: a drain gives its memory back")

func (sleepless) CanSleep(context.Context, int) error { return errSleepless }

func (sleepless) Sleep(context.Context, int) error { return errSleepless }

func (sleepless) Wake(context.Context, int) error { return errSleepless }

func (sleepless) Asleep(context.Context) (bool, error) { return false, nil }

func (sleepless) Turned() <-chan struct{} { return nil }
