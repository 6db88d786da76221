package model

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/dynctl/dynctl/internal/model/ggufmodel"
	"github.com/dynctl/dynctl/internal/model/ggufvocab"
	"github.com/dynctl/dynctl/internal/model/safetensors"
)

// Open reads and checks the checkpoint at path and maps its weights. path is a folder
// with config.json, the small files beside it, and safetensors weights; or a GGUF file;
// or a folder without safetensors that holds exactly one GGUF file. A mmproj file beside a GGUF
// file makes it read images. On failure nothing stays open. Errors name the file and the field or tensor. They match [ErrConfig],
// [ErrUnsupported], [ErrWeights], [ErrOutside], [safetensors.ErrFormat],
// [safetensors.ErrNoWeights] or [gguf.ErrFormat].
func Open(path string, opts Options) (*Model, error) {
	m, problems := Examine(path, opts)
	if len(problems) > 0 {
		_ = m.Close()
		return nil, fmt.Errorf("open model %s: %w", path, problems[0])
	}
	if m.quantize == "" {
		m.set.WillNeed()
	}
	return m, nil
}

// Examine opens a checkpoint as far as possible and returns all its problems; the first
// is the error of [Open]. The model is never nil, and the caller must close it. A model
// with problems can only be described: unreadable parts are zero, and its weights must
// not be used.
func Examine(path string, opts Options) (*Model, []error) {
	m := &Model{dir: path, places: map[roleKey]place{}, wanted: map[string]bool{}}
	problems := m.examine(path)
	if len(problems) == 0 && opts.Quantize != "" {
		problems = m.plan(opts.Quantize)
	}
	log := opts.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	for _, w := range m.warnings {
		log.Warn("model has oddities", "model", m.dir, "detail", w)
	}
	if m.mmproj != "" {
		log.Info("model reads images with a mmproj file", "model", m.dir, "mmproj", m.mmproj)
	}
	return m, problems
}

func (m *Model) examine(path string) (problems []error) {
	at, err := locate(path)
	if err != nil {
		return []error{err}
	}
	if at.note != "" {
		m.warnings = append(m.warnings, at.note)
	}
	if at.file != "" {
		problems = m.openFile(at.file, at.mmproj)
	} else {
		problems = m.openFolder(at.folder)
	}
	if m.set == nil {
		return problems
	}
	m.warnings = append(m.warnings, m.set.Warnings()...)
	if m.config.Layers > 0 { // it could be read
		problems = append(problems, m.checkTensors()...)
	}
	if m.digest, err = digest(m.files, m.set); err != nil {
		problems = append(problems, err)
	}
	if err := m.Check(); err != nil {
		problems = append(problems, err)
	}
	return problems
}

// openFolder reads a folder of safetensors.
func (m *Model) openFolder(f folder) (problems []error) {
	m.dir, m.format = f.dir, "safetensors"
	var err error
	if m.files, err = readFiles(f); err != nil {
		problems = append(problems, err)
	} else {
		problems = m.readConfig()
	}
	set, err := safetensors.OpenSet(f.dir, f.resolve)
	if err != nil {
		return append(problems, err)
	}
	m.set = newFolderSet(set)
	return problems
}

// openFile reads a GGUF file, and the mmproj file that belongs to it unless that is "".
func (m *Model) openFile(path, mmproj string) (problems []error) {
	m.dir, m.mmproj = path, mmproj
	c, err := ggufmodel.Open(path, mmproj)
	if err != nil {
		return []error{err}
	}
	m.format = fmt.Sprintf("gguf v%d", c.Version())
	m.set = fileSet{c}
	for _, name := range smallFiles() {
		if data, ok := c.Files()[name]; ok {
			m.files = append(m.files, newFile(name, data))
		}
	}
	for _, err := range c.Problems() {
		kind := ErrConfig
		if errors.Is(err, ggufmodel.ErrUnsupported) || errors.Is(err, ggufvocab.ErrUnknown) {
			kind = ErrUnsupported
		}
		problems = append(problems, fmt.Errorf("read %s: %w: %w", filepath.Base(path), kind, err))
	}
	if find(m.files, ConfigName) == nil {
		return problems
	}
	more := m.readConfig()
	if len(problems) > 0 {
		return problems // the other errors follow from the first
	}
	for _, err := range more {
		problems = append(problems, fmt.Errorf("read %s: %w", filepath.Base(path), err))
	}
	return problems
}

// readConfig reads everything except the weights.
func (m *Model) readConfig() []error {
	content := find(m.files, ConfigName)
	if content == nil {
		return []error{fmt.Errorf("read %s: %w: missing", ConfigName, ErrConfig)}
	}
	config, err := ParseConfig(content)
	if err != nil {
		return each(err)
	}
	m.config = config
	var problems []error
	if m.eos, err = readEOS(m.files, m.config.Vocab); err != nil {
		problems = append(problems, each(err)...)
	}
	if m.tokenLimit, err = readTokenLimit(find(m.files, TokenizerName), m.config.Vocab); err != nil {
		problems = append(problems, err)
	}
	return problems
}
