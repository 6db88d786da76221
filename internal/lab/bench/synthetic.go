package bench

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/dynctl/dynctl/internal/model"
)

// syntheticLayers is the number of layers of Qwen3-0.6B.
const syntheticLayers = 28

// syntheticModel returns a random model in the shape of Qwen3-0.6B with the given layers.
func syntheticModel(layers int) model.Synthetic {
	return model.Synthetic{
		Family: "qwen3", Layers: layers, Hidden: 1024, Heads: 16, KVHeads: 8, HeadDim: 128, FFN: 3072,
		Vocab: 151936, ContextLen: 40960, DType: "bf16", Tied: true, RopeTheta: 1e6, Seed: 1,
	}
}

// synthesize returns the directory of a synthetic model. It writes the model at first
// use.
func (s *session) synthesize(spec model.Synthetic) (string, error) {
	parent := filepath.Join(s.home, "models")
	text, err := json.Marshal(spec)
	if err != nil {
		return "", fmt.Errorf("name synthetic model: %w", err)
	}
	sum := sha256.Sum256(text)
	dir := filepath.Join(parent, fmt.Sprintf("%s-%dx%d-%s", spec.Family, spec.Layers, spec.Hidden, hex.EncodeToString(sum[:4])))
	if m, err := model.Open(dir, model.Options{}); err == nil {
		return dir, m.Close()
	}
	s.say("writing a model of %d layers to %s, for this run and later ones", spec.Layers, dir)
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return "", fmt.Errorf("write synthetic model: %w", err)
	}
	// In the directory of this run, which is removed in any case.
	tmp, err := os.MkdirTemp(s.tmp, "model-")
	if err != nil {
		return "", fmt.Errorf("write synthetic model: %w", err)
	}
	if err := spec.Write(tmp); err != nil {
		return "", errors.Join(err, os.RemoveAll(tmp))
	}
	if err := os.RemoveAll(dir); err != nil { // a damaged one
		return "", fmt.Errorf("write synthetic model: %w", err)
	}
	if err := os.Rename(tmp, dir); err != nil {
		if m, openErr := model.Open(dir, model.Options{}); openErr == nil { // another run was faster
			return dir, m.Close()
		}
		return "", fmt.Errorf("write synthetic model: %w", err)
	}
	return dir, nil
}

// checkpoint returns the directory of a synthetic model for this run only. It is deleted
// by remove, or when the run ends.
func (s *session) checkpoint(spec model.Synthetic) (dir string, remove func(), err error) {
	if dir, err = os.MkdirTemp(s.tmp, "model-"); err != nil {
		return "", nil, fmt.Errorf("write synthetic model: %w", err)
	}
	s.say("writing a model of %d layers, for this run only", spec.Layers)
	if err := spec.Write(dir); err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(dir))
	}
	return dir, func() { _ = os.RemoveAll(dir) }, nil // closing the session tries again
}
