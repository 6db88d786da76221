package model

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/dynctl/dynctl/internal/model/gguf"
	"github.com/dynctl/dynctl/internal/model/safetensors"
)

// found is what is at a path: a folder of safetensors, or GGUF files.
type found struct {
	folder folder
	file   string // the GGUF file of a text model; "" for a folder
	mmproj string // the mmproj file that belongs to it; "" for none
	note   string // about mmproj files that are not used
}

// locate finds out what is at path.
func locate(path string) (found, error) {
	info, err := os.Stat(path)
	if err != nil {
		return found{}, err
	}
	if !info.IsDir() {
		return locateFile(path, info)
	}
	f, err := openFolder(path)
	if err != nil {
		return found{}, err
	}
	for _, name := range []string{safetensors.SingleName, safetensors.IndexName} {
		if _, err := f.resolve(name); !errors.Is(err, fs.ErrNotExist) {
			return found{folder: f}, nil // opening it reports the error
		}
	}
	names, err := f.ggufFiles()
	if err != nil || len(names) == 0 {
		return found{folder: f}, err
	}
	texts := slices.DeleteFunc(slices.Clone(names), isMmproj)
	switch len(texts) {
	case 0:
		return found{}, fmt.Errorf("%w: the folder has no GGUF file but %s, which is the part of a model that reads images; put the GGUF file of its text model beside it", gguf.ErrFormat, names[0])
	case 1:
		file, err := f.resolve(texts[0])
		if err != nil {
			return found{}, err
		}
		return f.withMmproj(file, texts[0], names)
	}
	return found{}, fmt.Errorf("%w: the folder has %d GGUF files without mmproj in their names; name one of them: %s", gguf.ErrFormat, len(texts), strings.Join(texts[:2], ", "))
}

// locateFile finds the mmproj file beside a GGUF file: in the folder of path, wherever links
// lead from there.
func locateFile(path string, info fs.FileInfo) (found, error) {
	if !isGGUF(path, info) {
		return found{}, fmt.Errorf("%w: %s is not a folder and not a GGUF file; name the folder of the model", gguf.ErrFormat, path)
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return found{}, err
	}
	file, err := filepath.EvalSymlinks(abs)
	if err != nil || isMmproj(filepath.Base(abs)) {
		return found{file: file}, err // opening a mmproj file reports the error
	}
	f, err := openFolder(filepath.Dir(abs))
	if err != nil {
		return found{}, err
	}
	names, err := f.ggufFiles()
	if err != nil {
		return found{}, err
	}
	return f.withMmproj(file, filepath.Base(abs), names)
}

// withMmproj finds the mmproj file of a GGUF file; names are all GGUF files of the folder.
func (f folder) withMmproj(file, name string, names []string) (found, error) {
	mmproj, note, err := chooseMmproj(name, names)
	out := found{folder: f, file: file, note: note}
	if err == nil && mmproj != "" {
		out.mmproj, err = f.resolve(mmproj)
	}
	return out, err
}

// isMmproj reports whether a file is a mmproj by its name.
func isMmproj(name string) bool { return strings.Contains(strings.ToLower(name), "mmproj") }

// chooseMmproj picks the mmproj file of a model among the GGUF files of its folder. If the
// folder has several models, names decide: those of both without "mmproj" and their types are
// equal, or that of the mmproj file says nothing. Of several mmproj files the one of the model's
// type is picked. note says that none belongs to the model.
func chooseMmproj(model string, names []string) (mmproj, note string, err error) {
	all := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !isMmproj(name) })
	stem, kind := stemOf(model)
	others := slices.ContainsFunc(names, func(name string) bool {
		other, _ := stemOf(name)
		return !isMmproj(name) && other != stem
	})
	fit := all
	if others {
		named := func(stems ...string) []string {
			return slices.DeleteFunc(slices.Clone(all), func(name string) bool {
				own, _ := stemOf(name)
				return !slices.Contains(stems, own)
			})
		}
		if fit = named(stem); len(fit) == 0 {
			fit = named("", "model")
		}
	}
	if len(fit) > 1 {
		same := slices.DeleteFunc(slices.Clone(fit), func(name string) bool {
			_, own := stemOf(name)
			return own == "" || own != kind
		})
		if len(same) == 1 {
			fit = same
		}
	}
	switch {
	case len(fit) == 1:
		return fit[0], "", nil
	case len(fit) > 1:
		return "", "", fmt.Errorf("%w: %d mmproj files belong to %s: %s; leave one of them in the folder", gguf.ErrFormat, len(fit), model, strings.Join(fit, ", "))
	case len(all) > 0:
		return "", fmt.Sprintf("%s beside it is not used, because the folder has other models and its name is not that of this one: it reads text only", all[0]), nil
	}
	return "", "", nil
}

var (
	separators = regexp.MustCompile(`[-_. ]+`)
	typeAtEnd  = regexp.MustCompile(`^(|.*?-)(?:(?:ud|i1)-)?(bf16|fp?16|fp?32|i?q[0-9](?:-[a-z0-9]{1,2})*)$`)
)

// stemOf returns the name of a GGUF file in lower case without the type of its weights, without
// "mmproj" and "ggml", and the type.
func stemOf(name string) (stem, kind string) {
	name = strings.TrimSuffix(strings.ToLower(name), ggufExt)
	name = strings.NewReplacer("mmproj", "-", "ggml-", "").Replace(name)
	name = strings.Trim(separators.ReplaceAllString(name, "-"), "-")
	if m := typeAtEnd.FindStringSubmatch(name); m != nil {
		return strings.Trim(m[1], "-"), strings.Replace(m[2], "fp", "f", 1)
	}
	return name, ""
}

// isGGUF checks a file's name, or its first bytes: in a cache, files are named by their
// hashes.
func isGGUF(path string, info fs.FileInfo) bool {
	if strings.EqualFold(filepath.Ext(path), ggufExt) {
		return true
	}
	if !info.Mode().IsRegular() {
		return false
	}
	file, err := os.Open(path)
	if err != nil {
		return true // opening it reports the error
	}
	defer file.Close()
	var magic [4]byte
	_, err = io.ReadFull(file, magic[:])
	return err == nil && string(magic[:]) == "GGUF"
}
