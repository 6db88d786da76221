package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"unsafe"

	"github.com/dynctl/dynctl/internal/cuda/kernels"
	"github.com/dynctl/dynctl/internal/dynlib"
)

// tools are NVRTC and the assembler.
type tools struct {
	ctx              context.Context // of the whole run
	ptxas, nvdisasm  string
	create, compileF uintptr
	ptxSize, ptx     uintptr
	logSize, log     uintptr
	destroy          uintptr
}

func openTools(ctx context.Context, dir string) (*tools, error) {
	t := &tools{ctx: ctx, ptxas: filepath.Join(dir, "usr/bin/ptxas"), nvdisasm: filepath.Join(dir, "usr/bin/nvdisasm")}
	find := func(name string) (string, error) {
		found, err := filepath.Glob(filepath.Join(dir, "usr/lib/*", name))
		if err == nil && len(found) == 0 {
			err = fmt.Errorf("no %s in %s: remove that directory, and it is fetched again", name, dir)
		}
		if err != nil {
			return "", err
		}
		return found[0], nil
	}
	builtins, err := find("libnvrtc-builtins.so.11.8")
	if err != nil {
		return nil, err
	}
	path, err := find("libnvrtc.so.11.2")
	if err != nil {
		return nil, err
	}
	// NVRTC loads its builtins by their name, and gets those that are loaded.
	if _, err := dynlib.Open(builtins); err != nil {
		return nil, err
	}
	lib, err := dynlib.Open(path)
	if err != nil {
		return nil, err
	}
	return t, lib.Bind(map[string]*uintptr{
		"nvrtcCreateProgram": &t.create, "nvrtcCompileProgram": &t.compileF, "nvrtcDestroyProgram": &t.destroy,
		"nvrtcGetPTXSize": &t.ptxSize, "nvrtcGetPTX": &t.ptx, "nvrtcGetProgramLogSize": &t.logSize, "nvrtcGetProgramLog": &t.log,
	})
}

// compile makes PTX of one source, which may include the headers among them.
func (t *tools) compile(name string, sources map[string]string) ([]byte, error) {
	var pin runtime.Pinner
	defer pin.Unpin()
	cstring := func(s string) uintptr {
		b := append([]byte(s), 0)
		pin.Pin(&b[0])
		return uintptr(unsafe.Pointer(&b[0]))
	}
	var headers, names []uintptr
	for file, content := range sources {
		if strings.HasSuffix(file, ".h") {
			headers, names = append(headers, cstring(content)), append(names, cstring(file))
		}
	}
	options := []uintptr{cstring("--gpu-architecture=compute_" + target), cstring("--std=c++17"), cstring("--device-as-default-execution-space")}
	array := func(p []uintptr) uintptr {
		pin.Pin(&p[0])
		return uintptr(unsafe.Pointer(&p[0]))
	}
	var program uintptr
	if r := dynlib.Call(t.create, uintptr(unsafe.Pointer(&program)), cstring(sources[name]), cstring(name), uintptr(len(headers)), array(headers), array(names)); int32(r) != 0 {
		return nil, fmt.Errorf("nvrtcCreateProgram: error %d", int32(r))
	}
	defer dynlib.Call(t.destroy, uintptr(unsafe.Pointer(&program)))
	read := func(size, get uintptr) []byte {
		var n uintptr
		if r := dynlib.Call(size, program, uintptr(unsafe.Pointer(&n))); int32(r) != 0 || n == 0 {
			return nil
		}
		b := make([]byte, n)
		if r := dynlib.Call(get, program, uintptr(unsafe.Pointer(&b[0]))); int32(r) != 0 {
			return nil
		}
		return bytes.TrimRight(b, "\x00")
	}
	r := dynlib.Call(t.compileF, program, uintptr(len(options)), array(options))
	said := bytes.TrimSpace(read(t.logSize, t.log))
	if int32(r) != 0 || len(said) > 0 {
		return nil, fmt.Errorf("compile %s: NVRTC error %d\n%s", name, int32(r), said) // warnings are errors
	}
	ptx := read(t.ptxSize, t.ptx)
	if len(ptx) == 0 {
		return nil, fmt.Errorf("compile %s: NVRTC returned no PTX", name)
	}
	return ptx, nil
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
