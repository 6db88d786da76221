package model

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/dynctl/dynctl/internal/model/mapped"
)

// folder is a model folder with its links resolved.
type folder struct {
	dir string
	// roots are the folders that may contain files: dir itself and, for a snapshot of the
	// Hugging Face cache, the blobs of the same repository, to which the snapshot's links
	// lead.
	roots []string
}

func openFolder(dir string) (folder, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return folder{}, err
	}
	target, err := filepath.EvalSymlinks(abs)
	if err != nil {
		return folder{}, err
	}
	info, err := os.Stat(target)
	if err != nil {
		return folder{}, err
	}
	if !info.IsDir() {
		return folder{}, fmt.Errorf("%s is not a folder", dir)
	}
	f := folder{dir: target, roots: []string{target}}
	if snapshots := filepath.Dir(target); filepath.Base(snapshots) == "snapshots" {
		repo := filepath.Dir(snapshots)
		if strings.HasPrefix(filepath.Base(repo), "models--") {
			f.roots = append(f.roots, filepath.Join(repo, "blobs"))
		}
	}
	return f, nil
}

// resolve finds a file by its base name. The error of a missing file matches
// [fs.ErrNotExist]; that of a link that leads out of the folder, or nowhere, does not.
func (f folder) resolve(name string) (string, error) {
	path := filepath.Join(f.dir, name)
	if _, err := os.Lstat(path); err != nil {
		return "", err
	}
	target, err := filepath.EvalSymlinks(path)
	if err != nil {
		//nolint:errorlint // a link to nowhere must not look like a file that is missing
		return "", fmt.Errorf("open %s: link cannot be followed: %s", name, err)
	}
	for _, root := range f.roots {
		if rel, err := filepath.Rel(root, target); err == nil && filepath.IsLocal(rel) {
			return target, nil
		}
	}
	return "", fmt.Errorf("open %s: %w: it is at %s", name, ErrOutside, target)
}

// maxTemplates bounds the files of TemplateFolder.
const maxTemplates = 32

// templates lists the files of TemplateFolder in order of their names.
func (f folder) templates() ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(f.dir, TemplateFolder))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if filepath.Ext(e.Name()) == filepath.Ext(ChatTemplateName) {
			names = append(names, path.Join(TemplateFolder, e.Name()))
		}
	}
	if len(names) > maxTemplates {
		return nil, fmt.Errorf("read %s: %d templates, limit %d", TemplateFolder, len(names), maxTemplates)
	}
	return names, nil
}

// read returns a small file, or nil if it does not exist.
func (f folder) read(name string, limit int64) ([]byte, error) {
	at, err := f.resolve(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(at)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("read %s: not a regular file", name)
	}
	file, err := os.Open(at)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if mapped.IsPointer(content) {
		return nil, fmt.Errorf("read %s: %w: %w", name, ErrConfig, mapped.ErrPointer)
	}
	if int64(len(content)) > limit {
		return nil, fmt.Errorf("read %s: larger than %d bytes", name, limit)
	}
	return content, nil
}

const ggufExt = ".gguf"

// ggufFiles lists the GGUF files of the folder in order of their names.
func (f folder) ggufFiles() ([]string, error) {
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if strings.EqualFold(filepath.Ext(e.Name()), ggufExt) && !e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}
