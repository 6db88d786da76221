package nvrtc

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"unsafe"

	"github.com/dynctl/dynctl/internal/dynlib"
)

// Program is a source with what it needs.
type Program struct {
	Name    string            // of the source, in messages
	Text    string            // CUDA C++
	Headers map[string]string // that it may include, by name
	Options []string          // such as "--gpu-architecture=compute_90"
}

// Compile makes PTX of a program. Warnings are what the compiler said of one that it
// compiled; the error of another has what it said of that.
func (c *Compiler) Compile(p Program) (ptx []byte, warnings string, err error) {
	var pin runtime.Pinner // of what arrays point to
	defer pin.Unpin()
	cstring := func(s string) uintptr {
		b := append([]byte(s), 0)
		pin.Pin(&b[0])
		return uintptr(unsafe.Pointer(&b[0]))
	}
	array := func(p []uintptr) uintptr {
		if len(p) == 0 {
			return 0
		}
		pin.Pin(&p[0])
		return uintptr(unsafe.Pointer(&p[0]))
	}
	var headers, names, options []uintptr
	for name, content := range p.Headers {
		headers, names = append(headers, cstring(content)), append(names, cstring(name))
	}
	for _, o := range p.Options {
		options = append(options, cstring(o))
	}
	var program uintptr
	r := dynlib.Call(c.fn.create, uintptr(unsafe.Pointer(&program)), cstring(p.Text), cstring(p.Name), uintptr(len(headers)), array(headers), array(names))
	if err := c.call("nvrtcCreateProgram", r); err != nil {
		return nil, "", fmt.Errorf("compile %s: %w", p.Name, err)
	}
	defer dynlib.Call(c.fn.destroy, uintptr(unsafe.Pointer(&program)))
	err = c.call("nvrtcCompileProgram", dynlib.Call(c.fn.compile, program, uintptr(len(options)), array(options)))
	said := strings.TrimSpace(string(c.read(program, c.fn.logSize, c.fn.log)))
	if err != nil {
		return nil, "", fmt.Errorf("compile %s: %w\n%s", p.Name, err, said)
	}
	if ptx = c.read(program, c.fn.ptxSize, c.fn.ptx); len(ptx) == 0 {
		return nil, "", fmt.Errorf("compile %s: %w: it returned no PTX", p.Name, ErrUnusable)
	}
	return ptx, said, nil
}

// maxResult bounds what is believed of a result's size: a library of another interface
// must not make this process allocate all memory.
const maxResult = 1 << 30

// read returns a text of a program: one function tells its size, another one copies it.
func (c *Compiler) read(program, size, get uintptr) []byte {
	var n uintptr
	if r := dynlib.Call(size, program, uintptr(unsafe.Pointer(&n))); int32(r) != 0 || n == 0 || n > maxResult {
		return nil
	}
	b := make([]byte, n)
	if r := dynlib.Call(get, program, uintptr(unsafe.Pointer(&b[0]))); int32(r) != 0 {
		return nil
	}
	return bytes.TrimRight(b, "\x00")
}
