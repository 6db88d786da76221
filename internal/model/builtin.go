package model

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// builtinFS holds the checkpoints as the programs in scripts/demo-model export them. To
// change a model, put other files there: nothing else knows what is in them but the answers
// that internal/engine/cpu/cputest compares.
//
//go:embed builtin builtin-vision
var builtinFS embed.FS

// A BuiltinModel is a checkpoint that is part of the program. The models are small and know
// little (docs/demo-model.md), but they answer, and say what they were told or shown. So a
// cluster can be tried without downloading a checkpoint.
type BuiltinModel struct {
	name func() string
	from string // directory of builtinFS
}

// The built-in models.
var (
	BuiltinText   = newBuiltin("builtin")
	BuiltinVision = newBuiltin("builtin-vision") // reads text and sees images
)

func newBuiltin(from string) BuiltinModel {
	return BuiltinModel{from: from, name: sync.OnceValue(func() string {
		files, err := readContent(builtinFS, from)
		if err != nil {
			panic(err) // they are part of the program
		}
		return from + "-" + files.hash()[:16] // the files themselves are too large to be kept
	})}
}

// Write writes the model under stateDir, if it is not there yet, and returns its folder.
//
// The folder's name holds a hash of the content, which is the same on every machine.
// Several processes may call Write at once: each writes its own folder and renames it
// into place, and the first one wins. A folder with damaged files is replaced.
func (b BuiltinModel) Write(stateDir string) (dir string, err error) {
	dir, err = b.write(filepath.Join(stateDir, "models"))
	if err != nil {
		return "", fmt.Errorf("write built-in model: %w", err)
	}
	return dir, nil
}

// Dir returns the folder of Write, whether or not it has been written.
func (b BuiltinModel) Dir(stateDir string) string {
	return filepath.Join(stateDir, "models", b.name())
}

// Builtin is Write of [BuiltinText].
func Builtin(stateDir string) (dir string, err error) { return BuiltinText.Write(stateDir) }

func (b BuiltinModel) write(parent string) (string, error) {
	name := b.name()
	files, err := readContent(builtinFS, b.from)
	if err != nil {
		return "", err
	}
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
	defer func() { _ = os.RemoveAll(tmp) }() // the next call removes what remains
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

// content holds the files of a folder, by name.
type content map[string][]byte

func readContent(fsys fs.FS, dir string) (content, error) {
	entries, err := fs.ReadDir(fsys, dir)
	if err != nil {
		return nil, err
	}
	c := make(content, len(entries))
	for _, e := range entries {
		if c[e.Name()], err = fs.ReadFile(fsys, path.Join(dir, e.Name())); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// hash returns a hash over names and contents.
func (c content) hash() string {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(c)) {
		part(h, []byte(name))
		part(h, c[name])
	}
	return hex.EncodeToString(h.Sum(nil))
}

// equalDir reports whether dir holds the same files. Additional files do not matter.
func (c content) equalDir(dir string) bool {
	for name, want := range c {
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || !bytes.Equal(got, want) {
			return false
		}
	}
	return true
}

// writeDir writes all files and syncs them to disk, so that the later rename never
// exposes partial files after a power failure.
func (c content) writeDir(dir string) error {
	if err := os.Chmod(dir, 0o755); err != nil { // MkdirTemp makes it private
		return err
	}
	for name, data := range c {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		_, err = f.Write(data)
		if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
			return err
		}
	}
	return nil
}

// removeLeftovers deletes the folders of processes that died while writing.
func removeLeftovers(parent string) {
	entries, err := os.ReadDir(parent)
	if err != nil {
		return // the caller gets the same error
	}
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && strings.HasPrefix(e.Name(), "builtin-") && strings.Contains(e.Name(), ".tmp-") &&
			time.Since(info.ModTime()) > time.Hour {
			_ = os.RemoveAll(filepath.Join(parent, e.Name()))
		}
	}
}
