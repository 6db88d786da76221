package safetensors

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dynctl/dynctl/internal/model/mapped"
)

// Names of the weight files of a checkpoint folder.
const (
	SingleName = "model.safetensors"
	IndexName  = "model.safetensors.index.json"
)

// ErrNoWeights is returned when a folder has neither a single weight file nor an
// index of shards.
var ErrNoWeights = errors.New("no " + SingleName + " and no " + IndexName)

// maxIndex bounds the index file, in bytes.
const maxIndex = maxHeader

// Set is all weight files of a checkpoint.
type Set struct {
	files    []*File
	byName   map[string]Tensor
	warnings []string
}

// OpenSet opens model.safetensors, or else the shards that the index names.
// resolve turns a base name into the path to open; it is where the caller keeps
// links inside the folder, and nil stands for the plain path. It must return an
// error that matches [fs.ErrNotExist] for a missing file.
func OpenSet(dir string, resolve func(name string) (string, error)) (*Set, error) {
	if resolve == nil {
		resolve = func(name string) (string, error) {
			path := filepath.Join(dir, name)
			_, err := os.Stat(path)
			return path, err
		}
	}
	path, err := resolve(SingleName)
	if err == nil {
		return openShards([]string{SingleName}, func(string) (string, error) { return path, nil })
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	path, err = resolve(IndexName)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNoWeights
	}
	if err != nil {
		return nil, err
	}
	index, err := readIndex(path)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", IndexName, err)
	}
	set, err := openShards(index.files(), resolve)
	if err != nil {
		return nil, err
	}
	if err := set.checkIndex(index); err != nil {
		_ = set.Close()
		return nil, fmt.Errorf("read %s: %w", IndexName, err)
	}
	return set, nil
}

func openShards(names []string, resolve func(string) (string, error)) (_ *Set, err error) {
	set := &Set{byName: make(map[string]Tensor)}
	defer func() {
		if err != nil {
			_ = set.Close()
		}
	}()
	for _, name := range names {
		path, err := resolve(name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("read %s: %w: shard %q is not in the folder", IndexName, ErrFormat, name)
		}
		if err != nil {
			return nil, err
		}
		file, err := open(path)
		if err != nil {
			return nil, fmt.Errorf("open %s: %w", name, err)
		}
		set.files = append(set.files, file)
		file.Rename(name) // a link's target may be called otherwise
		for i := range file.tensors {
			t := &file.tensors[i]
			t.File = name
			if other, dup := set.byName[t.Name]; dup {
				return nil, fmt.Errorf("open %s: %w: tensor %q is also in %s", name, ErrFormat, t.Name, other.File)
			}
			set.byName[t.Name] = *t
		}
	}
	return set, nil
}

// checkIndex proves that each tensor lies in the file that the index says.
func (s *Set) checkIndex(index index) error {
	for name, file := range index.weightMap {
		t, ok := s.byName[name]
		if !ok || t.File != file {
			return badf("tensor %q is not in %s", name, file)
		}
	}
	var total int64
	for _, t := range s.byName {
		total += int64(len(t.Data))
		if _, ok := index.weightMap[t.Name]; !ok {
			s.warnings = append(s.warnings, fmt.Sprintf("tensor %q of %s is not in the index", t.Name, t.File))
		}
	}
	if index.hasTotal && index.totalSize != total {
		s.warnings = append(s.warnings, fmt.Sprintf("index says %d bytes of weights, the shards have %d", index.totalSize, total))
	}
	slices.Sort(s.warnings)
	return nil
}

// Tensor finds a tensor by name.
func (s *Set) Tensor(name string) (Tensor, bool) {
	t, ok := s.byName[name]
	return t, ok
}

// Names lists all tensors in order of their names.
func (s *Set) Names() []string {
	names := make([]string, 0, len(s.byName))
	for name := range s.byName {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Files lists the weight files in order of their names.
func (s *Set) Files() []*File { return s.files }

// Warnings lists oddities that do not hinder loading.
func (s *Set) Warnings() []string { return s.warnings }

// WillNeed asks the system to read all files ahead.
func (s *Set) WillNeed() {
	for _, f := range s.files {
		f.WillNeed()
	}
}

// CheckSize returns [ErrChanged] when any file changed its size since it was
// mapped.
func (s *Set) CheckSize() error {
	for _, f := range s.files {
		if err := f.CheckSize(); err != nil {
			return err
		}
	}
	return nil
}

// Close unmaps all files; it may be called twice.
func (s *Set) Close() error {
	var errs []error
	for _, f := range s.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// index is the content of model.safetensors.index.json.
type index struct {
	weightMap map[string]string
	totalSize int64
	hasTotal  bool
}

// files lists the shards in order of their names, each once.
func (x index) files() []string {
	var names []string
	for _, name := range x.weightMap {
		names = append(names, name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func readIndex(path string) (index, error) {
	info, err := os.Stat(path)
	if err != nil {
		return index{}, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxIndex {
		return index{}, badf("not a regular file of at most %d bytes", maxIndex)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return index{}, err
	}
	if mapped.IsPointer(raw) {
		return index{}, badf("%w", mapped.ErrPointer)
	}
	return parseIndex(raw)
}

func parseIndex(raw []byte) (index, error) {
	var x index
	if err := checkJSON(raw); err != nil {
		return x, err
	}
	w := newWalker(raw)
	err := w.object(func(key string) (err error) {
		switch key {
		case "weight_map":
			x.weightMap, err = w.strings()
		case "metadata":
			err = w.object(func(key string) error { return w.indexMetadata(key, &x) })
		default:
			err = w.skip()
		}
		return err
	})
	if err != nil {
		return x, err
	}
	if len(x.weightMap) == 0 {
		return x, badf("weight_map is missing or empty")
	}
	for tensor, file := range x.weightMap {
		// Both separators are refused everywhere: a folder may move between
		// systems.
		if file == "" || file == "." || file == ".." || strings.ContainsAny(file, "/\\\x00") {
			return x, badf("tensor %q: file %q is not a plain base name", tensor, file)
		}
	}
	return x, nil
}

// indexMetadata picks total_size, which some writers store as a fraction or a
// string: those are passed over, since the value only serves a warning.
func (w *walker) indexMetadata(key string, x *index) error {
	if key != "total_size" {
		return w.skip()
	}
	tok, err := w.dec.Token()
	if err != nil {
		return badf("%v", err)
	}
	switch tok := tok.(type) {
	case interface{ Int64() (int64, error) }:
		if n, err := tok.Int64(); err == nil {
			x.totalSize, x.hasTotal = n, true
		}
		return nil
	case string, bool, nil:
		return nil
	}
	return badf("metadata.total_size is not a number")
}
