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

// builtinFS holds the checkpoint as scripts/demo-model/export.py writes it. To change
// the model, put other files there: nothing else knows what is in them but the answers
// that internal/engine/cpu/cputest compares.
//
//go:embed builtin
var builtinFS embed.FS

// Builtin writes the built-in model under stateDir, if it is not there yet, and returns
// its folder. The model is small and knows little (docs/demo-model.md), but it answers
// and recalls facts from the conversation. So a cluster can be tried without downloading
// a checkpoint.
//
// The folder's name holds a hash of the content, which is the same on every machine.
// Several processes may call Builtin at once: each writes its own folder and renames it
// into place, and the first one wins. A folder with damaged files is replaced.
func Builtin(stateDir string) (dir string, err error) {
	dir, err = writeBuiltin(filepath.Join(stateDir, "models"))
	if err != nil {
		return "", fmt.Errorf("write built-in model: %w", err)
	}
	return dir, nil
}

// BuiltinDir returns the folder of [Builtin], whether or not it has been written.
func BuiltinDir(stateDir string) string { return filepath.Join(stateDir, "models", builtinName()) }

// builtinName returns the name of the built-in model's folder. The files themselves are too
// large to be kept.
var builtinName = sync.OnceValue(func() string {
	files, err := readContent(builtinFS, "builtin")
	if err != nil {
		panic(err) // they are part of the program
	}
	return "builtin-" + files.hash()[:16]
})

func writeBuiltin(parent string) (string, error) {
	name := builtinName()
	files, err := readContent(builtinFS, "builtin")
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
