package model

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/model/gguf"
	"github.com/dynctl/dynctl/internal/model/mapped"
	"github.com/dynctl/dynctl/internal/model/quantcache"
	"github.com/dynctl/dynctl/internal/model/safetensors"
)

// quantizedSet is weights of which some are quantized. The quantized ones are in a
// separate file; all others are read from the original files.
type quantizedSet struct {
	weightSet                              // as they are stored
	planned   map[string]safetensors.DType // the quantized ones
	contents  quantcache.Contents
	file      *quantcache.File // nil until Prepare
}

// quantizedType returns the type to which a role's tensors are quantized, or "" for those
// that stay. The embedding and the head get eight bits in all formats: errors matter most
// there, and these matrices are few.
func quantizedType(format string, r Role) safetensors.DType {
	switch r {
	case RoleEmbed, RoleHead:
		return safetensors.Q8_0
	case RoleQ, RoleK, RoleV, RoleO, RoleGate, RoleUp, RoleDown, RoleExpertGate, RoleExpertUp, RoleExpertDown:
		return safetensors.DType(strings.ToUpper(format))
	}
	return ""
}

// plan decides which tensors are quantized. Afterwards the model describes itself as
// quantized.
func (m *Model) plan(format string) []error {
	if !slices.Contains(cluster.WeightFormats(), format) {
		return []error{fmt.Errorf("%w: quantize %q; known are %s", ErrUnsupported, format, strings.Join(cluster.WeightFormats(), ", "))}
	}
	set := &quantizedSet{
		weightSet: m.set, planned: map[string]safetensors.DType{},
		contents: quantcache.Contents{Source: m.digest, Format: format, Files: m.set.Origins()},
	}
	var kept []string
	for _, spec := range m.specs {
		want := quantizedType(format, spec.Role)
		if want == "" {
			continue
		}
		t, _ := m.set.Lookup(spec.Name) // it was checked
		if t.DType.Quantized() {
			return []error{fmt.Errorf("%w: quantize %s: tensor %q is %s already; serve the file as it is, without quantize", ErrUnsupported, format, t.Name, t.DType)}
		}
		if block, _ := want.Block(); t.Shape[len(t.Shape)-1]%block != 0 {
			kept = append(kept, t.Name)
			continue
		}
		set.planned[t.Name] = want
		set.contents.Tensors = append(set.contents.Tensors, quantcache.Tensor{Name: t.Name, DType: want, Shape: t.Shape})
	}
	if len(set.planned) == 0 {
		return []error{fmt.Errorf("%w: quantize %s: no matrix has rows of whole blocks", ErrUnsupported, format)}
	}
	if n := len(kept); n > 0 {
		m.warnings = append(m.warnings, fmt.Sprintf("%d of %d matrices keep their type, because their rows are not whole blocks of %s: %s",
			n, n+len(set.planned), format, strings.Join(kept, ", ")))
	}
	m.set, m.quantize = set, format
	h := sha256.New()
	for _, s := range []string{"quantized", quantizer, format, m.digest} {
		part(h, []byte(s))
	}
	m.digest = hex.EncodeToString(h.Sum(nil))
	return nil
}

// quantizer enters the digest. Change it whenever the quantized weights change.
const quantizer = "1"

// Cache says where quantized weights are kept between starts.
type Cache struct {
	// Dir is a folder with one file for each model and format. It is created if missing.
	// The files may be deleted.
	Dir string
	Log *slog.Logger // nil drops messages
	// Progress is called with the completed share, 0 to 1; may be nil.
	Progress func(done float64)
}

// Prepare makes the weights of a model opened with Options.Quantize readable. It maps the
// file that an earlier call left in the cache. If there is none, or it is damaged or from
// a changed checkpoint, Prepare quantizes the weights, with all processors and little
// memory, and writes the file. For other models it does nothing. Several processes may
// prepare the same model at once: one works, and the others wait for it. Prepare must
// return before the model is used concurrently.
//
// It returns the cause of ctx, errors of the file system, or errors that match
// [gguf.ErrValue] for weights that cannot be quantized, [safetensors.ErrNotANumber], or
// [mapped.ErrChanged] if the checkpoint changes meanwhile.
func (m *Model) Prepare(ctx context.Context, c Cache) error {
	set, ok := m.set.(*quantizedSet)
	if !ok || set.file != nil {
		return nil
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Progress == nil {
		c.Progress = func(float64) {}
	}
	c.Log = c.Log.With("model", m.dir, "weights", m.quantize)
	path := filepath.Join(c.Dir, fmt.Sprintf("%.32s-%s.weights", set.contents.Source, m.quantize))
	if err := set.prepare(ctx, c, path); err != nil {
		return fmt.Errorf("quantize %s to %s: %w%s", m.dir, m.quantize, err, advice(err, c.Dir))
	}
	return nil
}

// advice adds to an error what helps when the disk is full.
func advice(err error, dir string) string {
	if !errors.Is(err, syscall.ENOSPC) {
		return ""
	}
	return "; free space there: files of other models in " + dir + " may be deleted"
}

func (s *quantizedSet) prepare(ctx context.Context, c Cache, path string) (err error) {
	// Finished files are immutable, so it is read without a lock.
	if s.file, err = quantcache.Open(ctx, path, s.contents); err == nil || !replaceable(err) {
		return err
	}
	unlock, held, err := quantcache.Lock(ctx, path)
	if err != nil {
		return err
	}
	defer unlock()
	if s.file, err = quantcache.Open(ctx, path, s.contents); err == nil || !replaceable(err) {
		return err // another process was faster
	}
	if !errors.Is(err, fs.ErrNotExist) {
		c.Log.Warn("quantized weights of an earlier start cannot be used and are made again", "error", err)
	}
	if err := quantcache.RemoveLeftovers(path, held); err != nil {
		c.Log.Warn("unfinished files not removed", "error", err)
	}
	if err := s.make(ctx, c, path); err != nil {
		return err
	}
	s.file, err = quantcache.Open(ctx, path, s.contents)
	return err
}

// replaceable reports whether a file that could not be opened should be written again.
func replaceable(err error) bool {
	for _, target := range []error{fs.ErrNotExist, quantcache.ErrDamaged, quantcache.ErrOther, mapped.ErrChanged} {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}

// make writes the file.
func (s *quantizedSet) make(ctx context.Context, c Cache, path string) error {
	w, err := quantcache.Create(path, s.contents)
	if err != nil {
		return err
	}
	defer w.Abort()
	begin := time.Now()
	c.Log.Info("quantizing weights", "tensors", len(s.contents.Tensors), "bytes", w.Size(), "file", path)
	s.weightSet.WillNeed()
	done := int64(0)
	for i, t := range s.contents.Tensors {
		source, err := s.source(t.Name)
		if err != nil {
			return err
		}
		if err := s.quantize(ctx, w, i, source); err != nil {
			return err
		}
		done += int64(t.DType.Bytes(elements(t.Shape)))
		c.Progress(float64(done) / float64(w.Size()))
	}
	// The checkpoint must still be the one that the file names.
	if err := s.weightSet.CheckSize(); err != nil {
		return err
	}
	if err := w.Commit(); err != nil {
		return err
	}
	c.Log.Info("weights are quantized", "took", time.Since(begin).Round(time.Millisecond), "file", path)
	return nil
}

// source returns a tensor as it is stored.
func (s *quantizedSet) source(name string) (t Tensor, err error) {
	// Tensors that are not the mapping itself are converted here.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("tensor %s: %w", name, mapped.FaultError(r))
		}
	}()
	t, ok := s.weightSet.Fresh(name)
	if !ok {
		return t, fmt.Errorf("tensor %s is missing", name)
	}
	return t, nil
}

// quantize writes one tensor.
func (s *quantizedSet) quantize(ctx context.Context, w *quantcache.Writer, i int, source Tensor) error {
	from, okFrom := gguf.ParseType(string(source.DType))
	okFrom = okFrom || source.Scales != nil
	to, okTo := gguf.ParseType(string(s.contents.Tensors[i].DType))
	if !okFrom || !okTo {
		return fmt.Errorf("tensor %s of type %s", source.Name, source.DType)
	}
	cols := source.Shape[len(source.Shape)-1]
	sourceRow, targetRow := source.DType.Bytes(cols), s.contents.Tensors[i].DType.Bytes(cols)
	return w.Fill(ctx, i, func(dst []byte, first, rows int) error {
		values := make([]float32, cols)
		widen := func(row int) error {
			return gguf.Dequantize(values, from, source.Data[row*sourceRow:][:sourceRow])
		}
		if source.Scales != nil {
			w := safetensors.NewWidener(source)
			widen = func(row int) error { return w.Row(values, row) }
		}
		for r := range rows {
			err := widen(first + r)
			if err == nil {
				err = gguf.Quantize(dst[r*targetRow:][:targetRow], to, values)
			}
			if err != nil {
				return fmt.Errorf("row %d: %w", first+r, err)
			}
		}
		return nil
	})
}

func elements(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

// Lookup describes a tensor as it is, or as it will be after Prepare.
func (s *quantizedSet) Lookup(name string) (Tensor, bool) {
	t, ok := s.weightSet.Lookup(name)
	if dtype, planned := s.planned[name]; planned {
		t.Data, t.DType, t.Scales = nil, dtype, nil
	}
	return t, ok
}

// Tensor returns false for a planned tensor until Prepare has made the file.
func (s *quantizedSet) Tensor(name string) (Tensor, bool) {
	if _, planned := s.planned[name]; !planned {
		return s.weightSet.Tensor(name)
	}
	if s.file == nil {
		return Tensor{}, false
	}
	return s.file.Tensor(name)
}

func (s *quantizedSet) Fresh(name string) (Tensor, bool) { return s.Tensor(name) }

func (s *quantizedSet) Stored(name string) (dtype string, bytes int64) {
	if dtype, planned := s.planned[name]; planned {
		t, _ := s.weightSet.Lookup(name)
		return string(dtype), int64(dtype.Bytes(elements(t.Shape)))
	}
	return s.weightSet.Stored(name)
}

func (s *quantizedSet) CopiedBytes(name string) int64 {
	if _, planned := s.planned[name]; planned {
		return 0
	}
	return s.weightSet.CopiedBytes(name)
}

func (s *quantizedSet) CheckSize() error {
	if s.file != nil {
		if err := s.file.CheckSize(); err != nil {
			return err
		}
	}
	return s.weightSet.CheckSize()
}

func (s *quantizedSet) Close() error {
	err := s.weightSet.Close()
	if s.file != nil {
		err = errors.Join(err, s.file.Close())
	}
	return err
}
