package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/dynctl/dynctl/internal/cuda/kernels"
	"github.com/dynctl/dynctl/internal/lab/cuda/nvrtc"
)

// exactTarget is the target of units that are [kernels.Exact].
const exactTarget = "sm_90a"

// tools are NVRTC and assemblers.
type tools struct {
	ctx       context.Context // of the whole run
	nvrtc     *nvrtc.Compiler
	assembler *assembler
	exact     *assembler // for exactTarget, nil where it cannot be had
	why       error      // of that
}

// assembler is ptxas with what reads its output.
type assembler struct{ ptxas, nvdisasm string }

func newAssembler(dir string) *assembler {
	return &assembler{filepath.Join(dir, "usr/bin/ptxas"), filepath.Join(dir, "usr/bin/nvdisasm")}
}

func openTools(ctx context.Context, dir string) (*tools, error) {
	t := &tools{ctx: ctx, assembler: newAssembler(dir)}
	if dir, err := fetch(ctx, laterAssembler); err != nil {
		t.why = err
	} else {
		t.exact = newAssembler(dir)
	}
	const name = "libnvrtc.so.11.2"
	found, err := filepath.Glob(filepath.Join(dir, "usr/lib/*", name))
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("no %s in %s: remove that directory, and it is fetched again", name, dir)
	}
	if err != nil {
		return nil, err
	}
	t.nvrtc, err = nvrtc.Open(found[0])
	return t, err
}

// compile makes PTX of one source, which may include the headers among them.
func (t *tools) compile(name string, sources map[string]string) ([]byte, error) {
	p := nvrtc.Program{Name: name, Text: sources[name], Headers: map[string]string{}, Options: kernels.CompilerOptions(target)}
	for file, content := range sources {
		if strings.HasSuffix(file, ".h") {
			p.Headers[file] = content
		}
	}
	ptx, warnings, err := t.nvrtc.Compile(p)
	if err == nil && warnings != "" {
		err = fmt.Errorf("compile %s: warnings are errors\n%s", name, warnings)
	}
	if kernels.Exact(strings.TrimSuffix(name, ".cu")) {
		ptx = kernels.Retarget(ptx)
	}
	return ptx, err
}

// assembleExact returns what the assembler makes of kernels for exactTarget, or without one
// what it made before.
func (t *tools) assembleExact(ptx []byte, names []string, before []kernels.Limits) ([]kernels.Limits, error) {
	if t.exact != nil {
		return t.exact.assemble(t.ctx, ptx, exactTarget)
	}
	var table []kernels.Limits
	for _, l := range before {
		if l.Arch == exactTarget && slices.Contains(names, l.Kernel) {
			table = append(table, l)
		}
	}
	return table, nil
}

// tryOverlapping assembles kernels as they are where launches overlap.
func (t *tools) tryOverlapping(unit string, ptx []byte) error {
	a, arch := t.assembler, assembled[len(assembled)-1]
	if kernels.Exact(unit) {
		a, arch = t.exact, exactTarget
	}
	if a == nil {
		return nil
	}
	table, err := a.assemble(t.ctx, kernels.Overlapping(ptx), arch)
	if err != nil {
		return err
	}
	return refuse(table)
}

var (
	entryOf   = regexp.MustCompile(`Compiling entry function '(\w+)' for`)
	frameOf   = regexp.MustCompile(`(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads`)
	usedOf    = regexp.MustCompile(`Used (\d+) registers`)
	sharedOf  = regexp.MustCompile(`(\d+) bytes smem`)
	threadsOf = regexp.MustCompile(`(?s)\.entry (\w+)\(.*?\.maxntid (\d+), 1, 1`)
	doubtOf   = regexp.MustCompile(`(?m)^ptxas warning.*$|^.*\(C7\d+\).*$`) // such as products that are serialized
	sectionOf = regexp.MustCompile(`\.section\s+\.text\.(\w+)`)
)

// assemble returns what the assembler makes of the kernels in PTX.
func (a *assembler) assemble(ctx context.Context, ptx []byte, arch string) ([]kernels.Limits, error) {
	dir, err := os.MkdirTemp("", "ptxas")
	if err != nil {
		return nil, err
	}
	defer remove(dir)
	in, out := filepath.Join(dir, "in.ptx"), filepath.Join(dir, "out.cubin")
	if err := os.WriteFile(in, ptx, 0o644); err != nil {
		return nil, err
	}
	report, err := exec.CommandContext(ctx, a.ptxas, "-v", "-arch="+arch, "-o", out, in).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, report)
	}
	if doubt := doubtOf.Find(report); doubt != nil {
		return nil, fmt.Errorf("the assembler says: %s", doubt)
	}
	threads := map[string]int{}
	for _, m := range threadsOf.FindAllSubmatch(ptx, -1) {
		threads[string(m[1])] = number(m[2])
	}
	var table []kernels.Limits
	for _, part := range strings.Split(string(report), "ptxas info    : Compiling")[1:] {
		part = "Compiling" + part
		name := entryOf.FindStringSubmatch(part)
		frame, used := frameOf.FindStringSubmatch(part), usedOf.FindStringSubmatch(part)
		if name == nil || frame == nil || used == nil {
			return nil, fmt.Errorf("ptxas reports something else than expected:\n%s", part)
		}
		l := kernels.Limits{Kernel: name[1], Arch: arch, Threads: threads[name[1]], Registers: number(used[1]), StackBytes: number(frame[1]), SpillBytes: number(frame[2]) + number(frame[3])}
		if m := sharedOf.FindStringSubmatch(part); m != nil {
			l.SharedBytes = number(m[1])
		}
		if l.Threads == 0 {
			return nil, fmt.Errorf("kernel %s does not say how many threads its blocks have at most", l.Kernel)
		}
		table = append(table, l)
	}
	if len(table) == 0 {
		return nil, errors.New("there are no kernels in it")
	}
	return table, a.count(ctx, out, table)
}

// count fills in how many instructions of some kinds the kernels have.
func (a *assembler) count(ctx context.Context, cubin string, table []kernels.Limits) error {
	code, err := exec.CommandContext(ctx, a.nvdisasm, "-c", cubin).Output()
	if err != nil {
		return fmt.Errorf("disassemble: %w", err)
	}
	var l *kernels.Limits
	for line := range strings.Lines(string(code)) {
		if m := sectionOf.FindStringSubmatch(line); m != nil {
			l = nil
			for i := range table {
				if table[i].Kernel == m[1] {
					l = &table[i]
				}
			}
			continue
		}
		if l == nil {
			continue
		}
		for _, word := range strings.Fields(line) {
			switch op, _, _ := strings.Cut(word, "."); op {
			case "HMMA", "HGMMA":
				l.TensorOps++
			case "LDGSTS", "UTMALDG":
				l.AsyncCopies++
			}
		}
	}
	return nil
}

func number[T string | []byte](s T) int {
	n, err := strconv.Atoi(string(s))
	if err != nil {
		return -1
	}
	return n
}
