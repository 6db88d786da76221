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
// compute capability 8.0 and later, with drivers of CUDA 11.8 and later, but for those that
// are [Exact].
func Modules() []Module {
	names, _ := fs.Glob(files, "ptx/*.ptx") // the pattern is a good one
	modules := make([]Module, len(names))
	for i, name := range names {
		ptx, _ := files.ReadFile(name) // it was listed
		modules[i] = NewModule(strings.TrimSuffix(strings.TrimPrefix(name, "ptx/"), ".ptx"), ptx)
	}
	return modules
}

// NewModule is a unit of PTX that a compiler made.
func NewModule(name string, ptx []byte) Module {
	m := Module{Name: name, PTX: ptx}
	for _, found := range entry.FindAllSubmatch(ptx, -1) {
		m.Kernels = append(m.Kernels, string(found[1]))
	}
	return m
}

// Exact reports whether a unit, by the name of its source, is for compute capability 9.0
// and no other: what it computes, other units compute on every device.
func Exact(unit string) bool { return strings.HasSuffix(unit, "_sm90a") }

var (
	versionLine = regexp.MustCompile(`(?m)^\.version .*$`)
	targetLine  = regexp.MustCompile(`(?m)^\.target .*$`)
)

// Retarget makes PTX for sm_90a of what NVRTC wrote for another target. Compilers before
// CUDA 12.0 do not know it, and put into PTX what stands in asm without reading it.
func Retarget(ptx []byte) []byte {
	ptx = versionLine.ReplaceAll(ptx, []byte(".version 8.0"))
	return targetLine.ReplaceAll(ptx, []byte(".target sm_90a"))
}

// CompilerOptions returns NVRTC's options to compile the sources for an architecture,
// such as "80".
func CompilerOptions(architecture string) []string {
	return []string{"--gpu-architecture=compute_" + architecture, "--std=c++17", "--device-as-default-execution-space"}
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
