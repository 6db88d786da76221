package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/dynctl/dynctl/internal/cuda/kernels"
	"github.com/dynctl/dynctl/internal/cuda/nvrtc"
)

// tools are NVRTC and the assembler.
type tools struct {
	ctx             context.Context // of the whole run
	ptxas, nvdisasm string
	nvrtc           *nvrtc.Compiler
}

func openTools(ctx context.Context, dir string) (*tools, error) {
	t := &tools{ctx: ctx, ptxas: filepath.Join(dir, "usr/bin/ptxas"), nvdisasm: filepath.Join(dir, "usr/bin/nvdisasm")}
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
	return ptx, err
}

var (
	entryOf   = regexp.MustCompile(`Compiling entry function '(\w+)' for`)
	frameOf   = regexp.MustCompile(`(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads`)
	usedOf    = regexp.MustCompile(`Used (\d+) registers`)
	sharedOf  = regexp.MustCompile(`(\d+) bytes smem`)
	threadsOf = regexp.MustCompile(`(?s)\.entry (\w+)\(.*?\.maxntid (\d+), 1, 1`)
	sectionOf = regexp.MustCompile(`\.section\s+\.text\.(\w+)`)
)

// assemble returns what the assembler makes of the kernels in PTX.
func (t *tools) assemble(ptx []byte, arch string) ([]kernels.Limits, error) {
	dir, err := os.MkdirTemp("", "ptxas")
	if err != nil {
		return nil, err
	}
	defer remove(dir)
	in, out := filepath.Join(dir, "in.ptx"), filepath.Join(dir, "out.cubin")
	if err := os.WriteFile(in, ptx, 0o644); err != nil {
		return nil, err
	}
	report, err := exec.CommandContext(t.ctx, t.ptxas, "-v", "-arch="+arch, "-o", out, in).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, report)
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
	return table, t.count(out, table)
}

// count fills in how many instructions of some kinds the kernels have.
func (t *tools) count(cubin string, table []kernels.Limits) error {
	code, err := exec.CommandContext(t.ctx, t.nvdisasm, "-c", cubin).Output()
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
			case "HMMA":
				l.TensorOps++
			case "LDGSTS":
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
