package nvml

import (
	"bytes"
	"errors"
	"fmt"
	"unsafe"

	"github.com/dynctl/dynctl/internal/dynlib"
)

// Why there are no figures; each error of Open is one of them.
var (
	// ErrNoLibrary: libnvidia-ml.so.1 is not there, or this program cannot load libraries.
	ErrNoLibrary = errors.New("NVIDIA's driver is not installed")
	// ErrUnusable: the library is there and does not work; the text says why.
	ErrUnusable = errors.New("NVIDIA's management library cannot be used")
)

var libraryNames = []string{"libnvidia-ml.so.1"}

// functions are addresses; those that are 0 are missing in this release.
type functions struct {
	init, shutdown, count, handle                      uintptr
	driver, cuda                                       uintptr
	name, uuid, pci, memory, utilization, power, limit uintptr
	clock, maxClock, temperature, throttled, processes uintptr
}

func (f *functions) required() map[string]*uintptr {
	return map[string]*uintptr{"nvmlInit_v2": &f.init, "nvmlShutdown": &f.shutdown, "nvmlDeviceGetCount_v2": &f.count, "nvmlDeviceGetHandleByIndex_v2": &f.handle}
}

func (f *functions) optional() map[string]*uintptr {
	return map[string]*uintptr{
		"nvmlSystemGetDriverVersion": &f.driver, "nvmlSystemGetCudaDriverVersion_v2": &f.cuda,
		"nvmlDeviceGetName": &f.name, "nvmlDeviceGetUUID": &f.uuid, "nvmlDeviceGetPciInfo_v3": &f.pci,
		"nvmlDeviceGetMemoryInfo_v2": &f.memory, "nvmlDeviceGetUtilizationRates": &f.utilization,
		"nvmlDeviceGetPowerUsage": &f.power, "nvmlDeviceGetEnforcedPowerLimit": &f.limit,
		"nvmlDeviceGetClockInfo": &f.clock, "nvmlDeviceGetMaxClockInfo": &f.maxClock, "nvmlDeviceGetTemperature": &f.temperature,
		"nvmlDeviceGetCurrentClocksThrottleReasons": &f.throttled, // the later name is the same function
		"nvmlDeviceGetComputeRunningProcesses_v3":   &f.processes,
	}
}

// NVML is the loaded library.
type NVML struct{ fn functions }

// Open loads the library. The error says what is missing.
func Open() (*NVML, error) { return open(libraryNames...) }

func open(names ...string) (*NVML, error) {
	lib, err := dynlib.Open(names...)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoLibrary, err)
	}
	n := &NVML{}
	if err := lib.Bind(n.fn.required()); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnusable, err)
	}
	for name, p := range n.fn.optional() {
		_ = lib.Bind(map[string]*uintptr{name: p}) // call refuses what is 0
	}
	if err := call(n.fn.init); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnusable, err)
	}
	return n, nil
}

// Close ends the use of the library; no other call may run or follow.
func (n *NVML) Close() error {
	if err := call(n.fn.shutdown); err != nil {
		return fmt.Errorf("close NVIDIA's management library: %w", err)
	}
	return nil
}

// Return is an nvmlReturn_t that is not success.
type Return int32

// Returns that are told apart.
const (
	insufficientSize Return = 7
	functionNotFound Return = 13
)

var words = map[Return]string{
	1: "not initialized", 2: "invalid argument", 3: "not supported by this GPU", 4: "no permission", 6: "not found",
	insufficientSize: "not enough room for the answer",
	8:                "a power cable of the GPU is not attached",
	9:                "the driver is not loaded: nvidia-smi says more, modprobe nvidia loads it",
	10:               "the driver has a problem with its interrupts", 12: "the library was not found",
	functionNotFound: "not in this release of the library", 14: "the memory of the GPU with its description is corrupted",
	15: "the GPU has fallen off the bus, or cannot be reached", 16: "the GPU must be reset", 17: "the operating system refuses",
	18: "library and driver are of different releases: restart the machine, or reload the driver's modules",
	19: "in use", 20: "out of memory", 999: "unknown error",
}

// Error implements error.
func (r Return) Error() string {
	if w := words[r]; w != "" {
		return w
	}
	return fmt.Sprintf("NVML return %d", int32(r))
}

// call calls a function that returns an nvmlReturn_t.
//
//go:uintptrescapes
func call(fn uintptr, args ...uintptr) error {
	if fn == 0 {
		return functionNotFound
	}
	if r := Return(int32(dynlib.Call(fn, args...))); r != 0 {
		return r
	}
	return nil
}

// textBytes is room for every name, UUID and version.
const textBytes = 128

// text asks a function for a string of a GPU; without an answer it is empty.
func text(fn, handle uintptr) string {
	var b [textBytes]byte
	if call(fn, handle, uintptr(unsafe.Pointer(&b)), textBytes) != nil {
		return ""
	}
	return untilZero(b[:])
}

func untilZero(b []byte) string {
	s, _, _ := bytes.Cut(b, []byte{0})
	return string(s)
}
