package source

import (
	"io"
	"path/filepath"
	"strings"
)

// file reads a file below the directory that is allowed. The directory is opened once, and
// the file below it: nothing that is renamed or linked meanwhile leads out.
func (g *Guard) file(path string) ([]byte, error) {
	if g.root == nil {
		return nil, refuse("no files of this machine are allowed: %s", path)
	}
	if g.cfg.OnlyEmbeddings && !hasEmbeddings(path) {
		return nil, refuse("only files of embeddings of this machine are allowed: %s", path)
	}
	inner, err := g.inside(path)
	if err != nil {
		return nil, err
	}
	f, err := openRegular(g.root, inner)
	if err != nil {
		return nil, refuse("open %s: %w", path, err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, g.cfg.MaxBytes+1))
	switch {
	case err != nil:
		return nil, refuse("read %s: %w", path, err)
	case int64(len(data)) > g.cfg.MaxBytes:
		return nil, refuse("%s has more than %d bytes", path, g.cfg.MaxBytes)
	}
	return data, nil
}

// inside returns the path below the directory: of the name as it is, or with its links
// resolved, as the directory's are.
func (g *Guard) inside(path string) (string, error) {
	clean := filepath.Clean(path)
	given, err := filepath.Abs(g.cfg.Directory)
	if err != nil {
		return "", refuse("%w", err)
	}
	for _, dir := range []string{given, g.dir} {
		if rel, err := filepath.Rel(dir, clean); err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator)) {
			return rel, nil
		}
	}
	return "", refuse("%s is not in %s", path, g.dir)
}
