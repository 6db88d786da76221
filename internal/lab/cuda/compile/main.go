// Command compile makes the PTX of package kernels from its sources, with NVRTC and ptxas
// of Debian's packages: no device, no driver and no toolkit is needed, and nothing is
// installed. It is run by go generate and linked into no program.
//
// It does nothing while the PTX was made from the sources as they are. With -check it
// compiles them all the same, and fails if that makes something else than what is there;
// where the packages cannot be had it says why, and only compares the sources.
//
// Units for sm_90a, which this NVRTC does not know, are compiled for another target, and
// their first lines rewritten; a later ptxas assembles them. Where that cannot be had, a check
// says so and compares their PTX only.
//
// It refuses kernels that spill registers, that no multiprocessor has room for, or of which the
// assembler says that it makes them slow.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/dynctl/dynctl/internal/cuda/kernels"
	"github.com/dynctl/dynctl/internal/dynlib"
)

// target is the architecture of the PTX; devices since compute capability 8.0 run it.
const target = "80"

// assembled are the architectures that ptxas tries: what a driver does at run time.
var assembled = []string{"sm_80", "sm_90"}

func main() {
	check := flag.Bool("check", false, "write nothing, and fail if something would be written")
	force := flag.Bool("force", false, "compile though the sources are as they were")
	flag.Parse()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	if err := run(ctx, log, *check, *force); err != nil {
		log.Error("compile kernels", "error", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, log *slog.Logger, check, force bool) error {
	changed := kernels.CheckSources(os.DirFS("."))
	if changed == nil && !check && !force {
		return nil
	}
	sources, err := readSources("src")
	if err != nil {
		return err
	}
	tools, err := findTools(ctx)
	if err != nil {
		if changed != nil || force {
			return errors.Join(changed, err)
		}
		log.Warn("skipped: kernels are not compiled again", "reason", err)
		return nil
	}
	table, err := kernels.AllLimits()
	if err != nil {
		return err
	}
	if tools.exact == nil {
		if changed != nil || force {
			return fmt.Errorf("kernels for sm_90a cannot be assembled: %w", tools.why)
		}
		log.Warn("kernels for sm_90a are not assembled again, only compiled", "reason", tools.why)
	}
	files, err := build(tools, sources, table)
	if err != nil {
		return err
	}
	return write("ptx", files, check)
}

// build returns the generated files by name. What cannot be assembled has the limits that it had.
func build(tools *tools, sources map[string]string, before []kernels.Limits) (map[string][]byte, error) {
	files := map[string][]byte{}
	var table []kernels.Limits
	for _, name := range slices.Sorted(maps.Keys(sources)) {
		stem, isKernel := strings.CutSuffix(name, ".cu")
		if !isKernel {
			continue
		}
		ptx, err := tools.compile(name, sources)
		if err != nil {
			return nil, err
		}
		files[stem+".ptx"] = tidy(ptx)
		if err := tools.tryOverlapping(stem, files[stem+".ptx"]); err != nil {
			return nil, fmt.Errorf("assemble %s for overlapping launches: %w", name, err)
		}
		if kernels.Exact(stem) {
			limits, err := tools.assembleExact(files[stem+".ptx"], kernels.NewModule(stem, ptx).Kernels, before)
			if err != nil {
				return nil, fmt.Errorf("assemble %s: %w", name, err)
			}
			table = append(table, limits...)
			continue
		}
		for _, arch := range assembled {
			limits, err := tools.assembler.assemble(tools.ctx, files[stem+".ptx"], arch)
			if err != nil {
				return nil, fmt.Errorf("assemble %s for %s: %w", name, arch, err)
			}
			table = append(table, limits...)
		}
	}
	if err := refuse(table); err != nil {
		return nil, err
	}
	sum, err := kernels.SumSources(os.DirFS("."))
	if err != nil {
		return nil, err
	}
	files["sources.sum"] = []byte(sum)
	files["limits.txt"] = kernels.FormatLimits(table)
	return files, nil
}

// refuse returns an error for every kernel that is slow or impossible by its resources.
func refuse(table []kernels.Limits) error {
	var errs []error
	for _, l := range table {
		if l.SpillBytes > 0 || l.StackBytes > 0 {
			errs = append(errs, fmt.Errorf("%s for %s spills %d bytes of registers and has %d bytes of stack: lower its unrolling or its threads", l.Kernel, l.Arch, l.SpillBytes, l.StackBytes))
		}
		if l.SharedBytes > 48<<10 {
			errs = append(errs, fmt.Errorf("%s for %s has %d bytes of static shared memory, more than 48 KiB", l.Kernel, l.Arch, l.SharedBytes))
		}
		if l.Registers*l.Threads > 64<<10 {
			errs = append(errs, fmt.Errorf("%s for %s needs %d registers for %d threads, a multiprocessor has 65536", l.Kernel, l.Arch, l.Registers, l.Threads))
		}
	}
	return errors.Join(errs...)
}

// tidy leaves out comments and empty lines: they say nothing of the code.
func tidy(ptx []byte) []byte {
	var out bytes.Buffer
	out.WriteString("// Code generated by compile. DO NOT EDIT.\n")
	for line := range bytes.Lines(ptx) {
		if code := bytes.TrimSpace(line); len(code) > 0 && !bytes.HasPrefix(code, []byte("//")) {
			out.Write(bytes.TrimRight(line, " \t\r\n"))
			out.WriteByte('\n')
		}
	}
	return out.Bytes()
}

func readSources(dir string) (map[string]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	sources := map[string]string{}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		sources[e.Name()] = string(text)
	}
	return sources, nil
}

// write makes a directory hold the files and no others.
func write(dir string, files map[string][]byte, check bool) error {
	var stale []string
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if files[e.Name()] == nil {
			stale = append(stale, e.Name())
			if !check {
				if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
					return err
				}
			}
		}
	}
	for name, text := range files {
		path := filepath.Join(dir, name)
		if have, err := os.ReadFile(path); err == nil && bytes.Equal(have, text) {
			continue
		}
		stale = append(stale, name)
		if !check {
			if err := os.WriteFile(path, text, 0o644); err != nil {
				return err
			}
		}
	}
	if check && len(stale) > 0 {
		slices.Sort(stale)
		return fmt.Errorf("%s in %s are not what the sources compile to: run go run ./compile -force in internal/cuda/kernels and commit the result", strings.Join(stale, ", "), dir)
	}
	return nil
}

// findTools returns the compiler and the assembler, from the cache or from Debian.
func findTools(ctx context.Context) (*tools, error) {
	if !dynlib.Enabled || runtime.GOOS != "linux" {
		return nil, errors.New("NVRTC can be loaded on Linux only")
	}
	dir, err := fetch(ctx, compiler)
	if err != nil {
		return nil, err
	}
	return openTools(ctx, dir)
}
