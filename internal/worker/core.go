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
	"github.com/dynctl/dynctl/internal/undo"
	"github.com/dynctl/dynctl/internal/worker/kv"
	"github.com/dynctl/dynctl/internal/worker/media"
	"github.com/dynctl/dynctl/internal/worker/role"
)

// core is the part of a worker that stays over all its terms: the model on its device, the KV
// plane and the engine over both.
type core struct {
	loaded *Loaded
	info   engine.BackendInfo
	kv     *kv.Plane
	media  *media.Plane
	images bool // the model takes images
	engine *engine.Engine
}

// load brings up model, KV pool, data plane and engine. What it has begun is released by
// back.
func (w *Worker) load(ctx context.Context, back *undo.Stack) (*core, error) {
	w.setState(cluster.StateLoading, "")
	begin := time.Now()
	loaded, err := w.cfg.Load(ctx, func(p float64) {
		w.board.update(func(st *cluster.WorkerStatus) { st.Progress = p })
	})
	if err != nil {
		return nil, fmt.Errorf("load model: %w", err)
	}
	c := &core{loaded: loaded, info: loaded.Backend.Info()}
	w.board.update(func(st *cluster.WorkerStatus) {
		st.Weights, st.TensorParallel = loaded.Card.Weights, c.info.TensorParallel
	})
	w.log.Info("model is loaded", "model", loaded.Card.DisplayName, "weights", loaded.Card.Weights, "digest", role.ShortDigest(loaded.Card.Digest))
	w.meters.now().ModelLoadTime.Set(time.Since(begin).Seconds())
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

func (w *Worker) newMedia(c *core) (*media.Plane, error) {
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

// figures returns the load figures of the engine and of the KV plane.
func (c *core) figures() cluster.WorkerStats {
	st := c.engine.Stats()
	c.kv.Figures(&st)
	return st
}
