package model

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/dynctl/dynctl/internal/model/minitok"
)

// Builtin writes the built-in model under stateDir, if it is not there yet, and
// returns its folder. The model is small and its weights are random, but it
// speaks in words: it stands in where no checkpoint is at hand, so that a cluster
// can be tried without a download.
//
// The folder's name holds a hash of the content, which is the same on every
// machine. Several processes may call Builtin at once: each writes a folder of
// its own and renames it into place, and the first one wins. A folder whose files
// were damaged is replaced.
func Builtin(stateDir string) (dir string, err error) {
	dir, err = writeBuiltin(filepath.Join(stateDir, "models"))
	if err != nil {
		return "", fmt.Errorf("write built-in model: %w", err)
	}
	return dir, nil
}

func writeBuiltin(parent string) (string, error) {
	spec, err := builtinSpec()
	if err != nil {
		return "", err
	}
	files := make(memorySink)
	if err := spec.writeTo(files); err != nil {
		return "", err
	}
	name := "builtin-" + files.hash()[:16]
	dir := filepath.Join(parent, name)
	if files.equalDir(dir) {
		return dir, nil
	}
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return "", err
	}
	removeLeftovers(parent)
	tmp, err := os.MkdirTemp(parent, name+".tmp-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(tmp) }() // what stays is a leftover to the next call
	if err := files.writeDir(tmp); err != nil {
		return "", err
	}
	for range 3 {
		err = os.Rename(tmp, dir)
		if err == nil || files.equalDir(dir) { // another process was faster
			return dir, nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return "", err
		}
		// A damaged folder is moved aside first: removing it in place could hit
		// the files that another process has just put there.
		aside := tmp + ".old"
		if err := os.Rename(dir, aside); err == nil {
			_ = os.RemoveAll(aside)
		}
	}
	return "", err
}

// hash is over names and contents.
func (m memorySink) hash() string {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(m)) {
		part(h, []byte(name))
		part(h, m[name])
	}
	return hex.EncodeToString(h.Sum(nil))
}

// equalDir reports whether dir holds the same files; others beside them do not
// matter.
func (m memorySink) equalDir(dir string) bool {
	for name, want := range m {
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || !bytes.Equal(got, want) {
			return false
		}
	}
	return true
}

// writeDir writes all files and waits until they are on the disk, so that a
// rename never shows half of them after a power cut.
func (m memorySink) writeDir(dir string) error {
	if err := os.Chmod(dir, 0o755); err != nil { // MkdirTemp makes it private
		return err
	}
	for name, content := range m {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		_, err = f.Write(content)
		if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
			return err
		}
	}
	return nil
}

// removeLeftovers deletes what processes left behind that died while writing.
func removeLeftovers(parent string) {
	entries, err := os.ReadDir(parent)
	if err != nil {
		return // the caller meets the same error
	}
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && strings.HasPrefix(e.Name(), "builtin-") && strings.Contains(e.Name(), ".tmp-") &&
			time.Since(info.ModTime()) > time.Hour {
			_ = os.RemoveAll(filepath.Join(parent, e.Name()))
		}
	}
}

// builtinSpec is the built-in model: a Qwen3 of four layers. One dimension of the
// residual is set apart: every embedding has the same value there and no layer
// writes to it, so the head can use it as a bias for each token. The bias follows
// how often a word occurs in the tokenizer's text and all but excludes pieces of
// words, odd bytes and special tokens, except that a turn ends now and then.
func builtinSpec() (Synthetic, error) {
	tok, err := minitok.Load(math.MaxInt)
	if err != nil {
		return Synthetic{}, err
	}
	bias := make([]float32, tok.Size())
	for id, p := range tok.Pieces() {
		switch {
		case p.Text == minitok.TurnEnd:
			bias[id] = biasTurnEnd
		case p.Count > 0:
			// A power of the count would need math.Log, which machines may
			// round differently; the number of its bits is near enough.
			for n := p.Count; n > 1; n /= 2 {
				bias[id] += biasPerDoubling
			}
		default:
			bias[id] = biasOther
		}
	}
	return Synthetic{
		Family: "qwen3", Layers: 4, Hidden: 128, Heads: 4, KVHeads: 2, HeadDim: 32, FFN: 384,
		Vocab: tok.Size(), ContextLen: 8192, DType: "bf16", Seed: 1,
		adjust:   func(t TensorSpec, first int, values []float32) { addBias(bias, t, first, values) },
		sampling: map[string]any{"do_sample": true, "temperature": 1.0},
	}, nil
}

// Biases of the head of the built-in model, in units of what the set-apart
// dimension carries, which is about a half. With them a turn ends after several
// hundred sampled tokens; greedy generation hardly ever ends it.
const (
	biasPerDoubling = 1.0
	biasTurnEnd     = 14
	biasOther       = -40
)

// addBias sets the first dimension apart and puts the bias into the head.
func addBias(bias []float32, t TensorSpec, first int, values []float32) {
	set := func(col, cols int, value func(row int) float32) {
		for i := range values {
			if at := first + i; at%cols == col {
				values[i] = value(at / cols)
			}
		}
	}
	zero := func(int) float32 { return 0 }
	switch t.Role {
	case RoleEmbed:
		set(0, t.Shape[1], func(int) float32 { return 1 })
	case RoleHead:
		set(0, t.Shape[1], func(row int) float32 { return bias[row] })
	case RoleFinalNorm:
		set(0, t.Shape[0], func(int) float32 { return 2 })
	case RoleAttnNorm, RoleMLPNorm: // layers do not see it
		set(0, t.Shape[0], zero)
	case RoleO, RoleDown: // nor write to it
		for i := range values {
			if first+i < t.Shape[1] {
				values[i] = 0
			}
		}
	}
}
