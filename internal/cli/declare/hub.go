package declare

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/human"
)

// hubName is the name of a model on Hugging Face: an owner and a model.
var hubName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*$`)

// hubPrefixes are forms in which people write such a name.
var hubPrefixes = []string{"https://huggingface.co/", "https://hf.co/", "huggingface.co/", "hf://", "hf.co/"}

// OnHub returns the name on Hugging Face that a model path was meant as; empty if it was
// meant as a path. What was typed is relative to dir, if it is no address.
func OnHub(path, dir string) string {
	typed := path
	if rel, err := filepath.Rel(dir, path); err == nil && filepath.IsAbs(path) {
		typed = rel
	}
	for _, p := range hubPrefixes {
		// Cleaning a path makes one slash of two.
		for _, p := range []string{p, strings.Replace(p, "://", ":/", 1)} {
			if rest, ok := strings.CutPrefix(typed, p); ok {
				owner, name, _ := strings.Cut(rest, "/")
				name, _, _ = strings.Cut(name, "/")
				typed = owner + "/" + name
			}
		}
	}
	if !hubName.MatchString(typed) || strings.EqualFold(filepath.Ext(typed), ".gguf") {
		return ""
	}
	return typed
}

// NoModel is the error about a model path at which nothing was found: err says so. It tells
// names on Hugging Face from paths with a mistake.
func NoModel(action string, err error, path, dir, command string) *exit.Failure {
	f := &exit.Failure{Action: action, Err: err, Facts: []string{"a model directory holds config.json, tokenizer.json and *.safetensors; a GGUF file holds everything"}}
	if !errors.Is(err, fs.ErrNotExist) {
		return f
	}
	f.Err = fmt.Errorf("model: there is nothing at %s", path)
	if name := OnHub(path, dir); name != "" {
		to := "~/models/" + filepath.Base(name)
		f.Err = fmt.Errorf("model: %s is no directory or file here; it looks like the name of a model on Hugging Face", name)
		f.Facts = []string{"dynctl and dynamod download no models: get it first"}
		f.Tries = []string{"hf download " + human.ShellQuote(name) + " --local-dir " + to + " && " + command + " " + to}
	}
	return f
}
