package driver

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"github.com/dynctl/dynctl/internal/dynlib"
)

// Numbers of CUjit_option and CUfunction_attribute.
const (
	jitErrorLog      = 5
	jitErrorLogBytes = 6

	funcMaxThreads   = 0
	funcSharedBytes  = 1
	funcLocalBytes   = 3
	funcRegisters    = 4
	funcBinaryArch   = 6
	funcMaxDynShared = 8
)

// logBytes is room for what the driver's compiler says of a failure.
const logBytes = 8 << 10

// ModuleLoadData implements Driver.
func (d *CUDA) ModuleLoadData(device int, image []byte) (module uint64, err error) {
	if len(image) == 0 {
		return 0, fmt.Errorf("%w: an empty module", ErrInvalid)
	}
	if err := d.enter(device); err != nil {
		return 0, err
	}
	defer leave()
	var pin runtime.Pinner // the compiler's log is named by a pointer in an array
	defer pin.Unpin()
	log := make([]byte, logBytes)
	pin.Pin(&log[0])
	options := [2]int32{jitErrorLog, jitErrorLogBytes}
	values := [2]uintptr{uintptr(unsafe.Pointer(&log[0])), logBytes} // a size is passed as if it were a pointer
	text := append(bytes.Clone(image), 0)                            // PTX must end in a zero
	err = d.call("cuModuleLoadDataEx", device, dynlib.Call(d.fn.moduleLoadDataEx, uintptr(unsafe.Pointer(&module)), uintptr(unsafe.Pointer(&text[0])),
		uintptr(len(options)), uintptr(unsafe.Pointer(&options[0])), uintptr(unsafe.Pointer(&values[0]))))
	var e *Error
	if errors.As(err, &e) {
		said, _, _ := bytes.Cut(log, []byte{0})
		e.Detail = string(bytes.TrimSpace(said))
	}
	return module, err
}

// ModuleUnload implements Driver.
func (d *CUDA) ModuleUnload(device int, module uint64) error {
	return d.simple("cuModuleUnload", device, d.fn.moduleUnload, "module", module)
}

// ModuleGetFunction implements Driver.
func (d *CUDA) ModuleGetFunction(device int, module uint64, name string) (function uint64, err error) {
	if err := handle("module", module); err != nil {
		return 0, err
	}
	if err := d.enter(device); err != nil {
		return 0, err
	}
	defer leave()
	text := cstring(name)
	err = d.call("cuModuleGetFunction", device, dynlib.Call(d.fn.moduleGetFunction, uintptr(unsafe.Pointer(&function)), uintptr(module), uintptr(unsafe.Pointer(&text[0]))))
	var e *Error
	if errors.As(err, &e) {
		e.Detail = "kernel " + name
	}
	return function, err
}

// FuncGetAttributes implements Driver.
func (d *CUDA) FuncGetAttributes(device int, function uint64) (r Resources, err error) {
	if err := handle("function", function); err != nil {
		return r, err
	}
	if err := d.enter(device); err != nil {
		return r, err
	}
	defer leave()
	var errs []error
	get := func(number uintptr) int {
		var v int32
		errs = append(errs, d.call("cuFuncGetAttribute", device, dynlib.Call(d.fn.funcGetAttribute, uintptr(unsafe.Pointer(&v)), number, uintptr(function))))
		return int(v)
	}
	r = Resources{
		Registers: get(funcRegisters), LocalBytes: get(funcLocalBytes), SharedBytes: get(funcSharedBytes),
		MaxThreads: get(funcMaxThreads), BinaryArch: get(funcBinaryArch),
	}
	return r, errors.Join(errs...)
}

// FuncSetMaxDynamicShared implements Driver.
func (d *CUDA) FuncSetMaxDynamicShared(device int, function uint64, bytes int) error {
	if err := handle("function", function); err != nil {
		return err
	}
	if err := d.enter(device); err != nil {
		return err
	}
	defer leave()
	return d.call("cuFuncSetAttribute", device, dynlib.Call(d.fn.funcSetAttribute, uintptr(function), funcMaxDynShared, uintptr(int32(bytes))))
}
