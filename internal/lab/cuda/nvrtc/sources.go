package nvrtc

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/dynctl/dynctl/internal/cuda/driver"
	"github.com/dynctl/dynctl/internal/cuda/kernels"
	"github.com/dynctl/dynctl/internal/cuda/module"
)

// Sources are kernels in CUDA C++, which are compiled on the machine that runs them: for
// whoever works on kernels there, or tries variants. They are written as those below
// src of package kernels, and launched with the grids and the shared memory that package
// kernels has for the names.
type Sources struct {
	Dir      string   // a unit for each .cu file; .h files are for all
	Macros   []string // NAME or NAME=VALUE, defined in each of them
	Compiler *Compiler
}

// Images compiles the sources for a device, and puts them in the place of those images
// that have the same name. They use all that the device has, where the compiler knows it:
// on compute capability 9.0, with NVRTC 12.0 and later, what only that one has (sm_90a). Units
// for that one are left out on others.
func (s Sources) Images(ctx context.Context, p driver.Properties, images []module.Image) ([]module.Image, error) {
	made, err := s.compile(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("compile the kernels in %s with NVRTC %s for %s: %w", s.Dir, s.Compiler.Version(), p.Name, err)
	}
	out := slices.DeleteFunc(slices.Clone(images), func(i module.Image) bool {
		return slices.ContainsFunc(made, func(m module.Image) bool { return m.Name == i.Name })
	})
	return append(out, made...), nil
}

func (s Sources) compile(ctx context.Context, p driver.Properties) ([]module.Image, error) {
	files, err := readSources(s.Dir)
	if err != nil {
		return nil, err
	}
	architecture, err := s.architecture(p)
	if err != nil {
		return nil, err
	}
	headers, options := map[string]string{}, kernels.CompilerOptions(architecture)
	for _, m := range s.Macros {
		if name, _, _ := strings.Cut(m, "="); name == "" || strings.ContainsAny(name, " -") {
			return nil, fmt.Errorf("%w: macro %q is not NAME or NAME=VALUE", driver.ErrInvalid, m)
		}
		options = append(options, "-D"+m)
	}
	var units []string
	hopper := p.Major == 9 && p.Minor == 0
	for name, text := range files {
		if filepath.Ext(name) == ".h" {
			headers[name] = text
		} else if hopper || !kernels.Exact(strings.TrimSuffix(name, ".cu")) {
			units = append(units, name)
		}
	}
	slices.Sort(units)
	origin := strings.Join(append([]string{"NVRTC " + s.Compiler.Version().String()}, s.Macros...), " -D")
	var out []module.Image
	var errs []error
	for _, name := range units {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		ptx, warnings, err := s.Compiler.Compile(Program{Name: name, Text: files[name], Headers: headers, Options: options})
		if err != nil {
			errs = append(errs, err)
			continue
		}
		unit := strings.TrimSuffix(name, ".cu")
		if kernels.Exact(unit) {
			ptx = kernels.Retarget(ptx)
		}
		m := kernels.NewModule(unit, ptx)
		if len(m.Kernels) == 0 {
			errs = append(errs, fmt.Errorf("%w: %s has no kernels", driver.ErrInvalid, name))
		}
		out = append(out, module.Image{Name: m.Name, PTX: m.PTX, Kernels: m.Kernels, Origin: origin, Warnings: warnings})
	}
	return out, errors.Join(errs...)
}

// architecture returns the latest architecture that NVRTC knows and the device runs.
func (s Sources) architecture(p driver.Properties) (string, error) {
	capability := 10*p.Major + p.Minor
	known := s.Compiler.Architectures()
	if known == nil { // it does not tell, and will say so if it does not know it
		return strconv.Itoa(capability), nil
	}
	best := 0
	for _, a := range known {
		if a <= capability {
			best = max(best, a)
		}
	}
	switch {
	case best < 80:
		return "", fmt.Errorf("%w: it has compute capability %d.%d, kernels need 8.0, and the compiler knows %v", module.ErrNoVariant, p.Major, p.Minor, known)
	case best == 90 && capability == 90 && s.Compiler.Version() >= 12000:
		return "90a", nil
	}
	return strconv.Itoa(best), nil
}

// maxSource bounds a file of sources, in bytes.
const maxSource = 1 << 20

// readSources reads the .cu and .h files of a folder.
func readSources(dir string) (map[string]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	files, units := map[string]string{}, 0
	for _, e := range entries {
		ext := filepath.Ext(e.Name())
		if ext != ".cu" && ext != ".h" || e.Type()&fs.ModeDir != 0 {
			continue
		}
		path := filepath.Join(dir, e.Name())
		info, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		if info.Size() > maxSource {
			return nil, fmt.Errorf("%w: %s has %d bytes, at most %d", driver.ErrInvalid, path, info.Size(), maxSource)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		if files[e.Name()] = string(text); ext == ".cu" {
			units++
		}
	}
	if units == 0 {
		return nil, fmt.Errorf("%w: it has no .cu files", driver.ErrInvalid)
	}
	return files, nil
}
