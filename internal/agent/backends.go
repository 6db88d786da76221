package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/dynctl/dynctl/internal/chat"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/engine/cpu"
	"github.com/dynctl/dynctl/internal/engine/mock"
	"github.com/dynctl/dynctl/internal/grammar"
	"github.com/dynctl/dynctl/internal/kvlayout"
	"github.com/dynctl/dynctl/internal/model"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/worker"
)

// newBackend makes the backend of a worker: for one that encodes only, what stands for it.
func (m *models) newBackend(ctx context.Context, as cluster.Assignment, sm *sharedModel, enc *encoder, spec cluster.EngineSpec) (engine.Backend, pool, error) {
	if as.Role.HoldsKV() {
		return sm.newBackend(ctx, spec, m.hostRoom())
	}
	if enc == nil {
		_, err := images(sm.model)
		if err == nil {
			err = errors.New("the device computes no vision tower")
		}
		return nil, pool{}, fmt.Errorf("model %s: no images can be encoded: %w", sm.model.Dir(), err)
	}
	return towerBackend{enc, as.Device, *sm.model.Config().Vision}, pool{1, 1}, nil
}

func (m *models) backend(ctx context.Context, as cluster.Assignment, sm *sharedModel) (*worker.Loaded, error) {
	spec := m.engineSpec(as.Engine)
	enc := sm.encoder(m.a.log)
	b, pool, err := m.newBackend(ctx, as, sm, enc, spec)
	if err != nil {
		return nil, err
	}
	loaded := &worker.Loaded{
		Backend: b, Blocks: pool.blocks, LeastBlocks: pool.least,
		Card: cluster.ModelCard{
			DisplayName: as.Model.Name, Digest: sm.model.Digest(), HashSeed: cluster.DefaultHashSeed,
			Weights: sm.model.WeightType(), ModelType: "Chat | Completions", ModelInput: "Tokens",
		},
		Files: map[string][]byte{},
		Constrain: func(ctx context.Context, g protocol.Guided) (engine.Constraint, error) {
			return newConstraint(ctx, sm.text, g)
		},
	}
	if sm.weights == nil {
		// Workers with real weights must refuse KV of mock workers, and the reverse.
		loaded.Card.Digest, loaded.Card.Weights = mockDigest+loaded.Card.Digest, cluster.BackendMock
	}
	if enc != nil {
		c := sm.model.Config()
		loaded.Encoder, loaded.Embedding, loaded.Card.Images = enc, c.Hidden, &cluster.ImageCard{Token: c.Vision.ImageToken}
	}
	for _, f := range sm.model.Files() {
		loaded.Card.Files = append(loaded.Card.Files, cluster.CardFile{Name: f.Name, SHA256: f.SHA256, Size: f.Size})
		loaded.Files[f.Name] = f.Data
	}
	return loaded, nil
}

// constraint adapts package chat's constraint: its errors become the engine's.
type constraint struct{ *chat.Constraint }

func newConstraint(ctx context.Context, p *chat.Processor, g protocol.Guided) (engine.Constraint, error) {
	c, err := p.NewConstraint(ctx, g)
	switch {
	case errors.Is(err, grammar.ErrBusy):
		return nil, fmt.Errorf("%w: %w", engine.ErrQueueFull, err)
	case err != nil:
		return nil, err
	}
	return constraint{c}, nil
}

func (c constraint) Mask(dst []uint64) error { return constraintError(c.Constraint.Mask(dst)) }

func (c constraint) Accept(token uint32) error { return constraintError(c.Constraint.Accept(token)) }

func constraintError(err error) error {
	if errors.Is(err, grammar.ErrAmbiguous) {
		return fmt.Errorf("%w: %w", engine.ErrConstraintCost, err)
	}
	return err
}

// mockDigest is the prefix of the digest of a model on the mock backend.
const mockDigest = "mock-"

// newBackend returns a backend over the weights, or the mock backend.
func (sm *sharedModel) newBackend(ctx context.Context, spec cluster.EngineSpec, free int64) (engine.Backend, pool, error) {
	if sm.weights != nil {
		return sm.weights.backend(ctx, spec, free)
	}
	b, err := newMock(spec, sm.model)
	if err != nil {
		return nil, pool{}, err
	}
	return withHostPool(b, spec, free)
}

// newMock makes a mock backend for a model.
func newMock(spec cluster.EngineSpec, m *model.Model) (engine.Backend, error) {
	if spec.KVDType != cpu.KVAuto && spec.KVDType != "f32" {
		return nil, fmt.Errorf("kv_cache_dtype: the mock backend keeps f32, not %s", spec.KVDType)
	}
	c := m.Config()
	if err := engine.CheckTensorParallel(max(spec.TensorParallel, 1), c.Heads, c.KVHeads); err != nil {
		return nil, err
	}
	return mock.New(mock.Options{
		BlockSize: spec.BlockSize, VocabSize: m.TokenLimit(), MaxContext: cmp.Or(spec.MaxModelLen, c.MaxContext),
		KVHeads: c.KVHeads, TensorParallel: spec.TensorParallel,
	}), nil
}

// mockKV returns the shape of a mock backend's blocks.
func mockKV(spec cluster.EngineSpec, m *model.Model) (kvlayout.Shape, error) {
	b, err := newMock(spec, m)
	if err != nil {
		return kvlayout.Shape{}, err
	}
	return b.Info().KV, b.Close()
}
