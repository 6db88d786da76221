package kernels

import (
	"crypto/sha256"
	"embed"
	"fmt"
	"io/fs"
	"regexp"
	"strings"
)

//go:embed ptx
var files embed.FS

// Module is a unit that a driver loads.
type Module struct {
	Name    string
	PTX     []byte
	Kernels []string // that are in it
}

var entry = regexp.MustCompile(`\.visible \.entry (\w+)\(`)

// Modules returns all there are, in the order of their names. They run on devices of
// compute capability 8.0 and later, with drivers of CUDA 11.8 and later.
func Modules() []Module {
	names, _ := fs.Glob(files, "ptx/*.ptx") // the pattern is a good one
	modules := make([]Module, len(names))
	for i, name := range names {
		ptx, _ := files.ReadFile(name) // it was listed
		m := Module{Name: strings.TrimSuffix(strings.TrimPrefix(name, "ptx/"), ".ptx"), PTX: ptx}
		for _, found := range entry.FindAllSubmatch(ptx, -1) {
			m.Kernels = append(m.Kernels, string(found[1]))
		}
		modules[i] = m
	}
	return modules
}

// SumSources is a line for each source below src of the package's directory, with its
// hash.
func SumSources(dir fs.FS) (string, error) {
	names, err := fs.Glob(dir, "src/*")
	if err != nil || len(names) == 0 {
		return "", fmt.Errorf("no sources of kernels below src: %w", err)
	}
	var sums strings.Builder
	for _, name := range names {
		text, err := fs.ReadFile(dir, name)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(text), name)
	}
	return sums.String(), nil
}

// CheckSources returns an error when the PTX was made from other sources than those
// below the package's directory.
func CheckSources(dir fs.FS) error {
	have, err := SumSources(dir)
	if err != nil {
		return err
	}
	want, err := files.ReadFile("ptx/sources.sum")
	if err != nil {
		return err
	}
	if have != string(want) {
		return fmt.Errorf("the PTX of kernels was made from other sources: run go generate ./internal/cuda/kernels where Debian's packages can be had, and commit the result")
	}
	return nil
}
