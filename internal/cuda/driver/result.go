package driver

import (
	"errors"
	"fmt"
	"strconv"
)

// Why there is no driver to compute with; each error of Open is one of them.
var (
	// ErrNoLibrary: libcuda.so.1 is not there, or this program cannot load libraries.
	ErrNoLibrary = errors.New("no CUDA driver")
	// ErrNoDevice: the driver is there and shows no device to this process.
	ErrNoDevice = errors.New("no CUDA device")
	// ErrTooOld: the driver is older than this program needs.
	ErrTooOld = errors.New("the CUDA driver is too old")
	// ErrUnusable: the driver or all devices refuse to work; the text says why.
	ErrUnusable = errors.New("the CUDA driver cannot be used")
)

// What a call may end in.
var (
	// ErrOutOfMemory: the device, or the host for page-locked memory, has no room.
	ErrOutOfMemory = errors.New("out of memory")
	// ErrInvalid: the call makes no sense, such as an unknown device or stream 0.
	ErrInvalid = errors.New("invalid argument")
)

// Result is a CUresult.
type Result int32

// The results that something is done about.
const (
	Success             Result = 0
	InvalidValue        Result = 1
	OutOfMemory         Result = 2
	Deinitialized       Result = 4
	DevicesUnavailable  Result = 46
	NoDevice            Result = 100
	InvalidImage        Result = 200
	InvalidContext      Result = 201
	NoBinaryForGPU      Result = 209
	UncorrectableECC    Result = 214
	PeerUnsupported     Result = 217
	InvalidPTX          Result = 218
	UnsupportedPTX      Result = 222
	InvalidHandle       Result = 400
	NotFound            Result = 500
	NotReady            Result = 600
	IllegalAddress      Result = 700
	LaunchTooMany       Result = 701
	LaunchTimeout       Result = 702
	HardwareStack       Result = 714
	IllegalInstruction  Result = 715
	MisalignedAddress   Result = 716
	InvalidAddressSpace Result = 717
	InvalidPC           Result = 718
	LaunchFailed        Result = 719
	PeerEnabled         Result = 704
	SystemNotReady      Result = 802
	DriverMismatch      Result = 803
	CompatNotSupported  Result = 804
	CaptureUnsupported  Result = 900
	CaptureInvalidated  Result = 901
	CaptureUnjoined     Result = 904
	CaptureIsolation    Result = 905
	CaptureImplicit     Result = 906
	CapturedEvent       Result = 907
	CaptureWrongThread  Result = 908
	Unknown             Result = 999
)

// words say what a result means here, and what to do.
var words = map[Result]string{
	InvalidValue:        "a value is invalid",
	OutOfMemory:         "out of memory",
	Deinitialized:       "the driver is shutting down",
	DevicesUnavailable:  "all devices are taken: one is in exclusive mode and another process computes on it (nvidia-smi -q -d COMPUTE)",
	NoDevice:            "no device is visible: see whether nvidia-smi lists one, and whether CUDA_VISIBLE_DEVICES or the container hides it",
	InvalidImage:        "the kernels are no valid image",
	InvalidContext:      "the context is invalid",
	NoBinaryForGPU:      "the kernels were not made for this device",
	UncorrectableECC:    "memory of the device is broken (uncorrectable ECC error): restart the process, and the device if it comes again",
	PeerUnsupported:     "the devices cannot use each other's memory (nvidia-smi topo -p2p r)",
	InvalidPTX:          "the driver's compiler refuses the kernels",
	UnsupportedPTX:      "the driver is older than the kernels' PTX: update it",
	InvalidHandle:       "a handle is not, or no longer, valid",
	NotFound:            "not found",
	NotReady:            "not ready",
	IllegalAddress:      "a kernel used an address that it may not",
	LaunchTooMany:       "a kernel asks for more registers or memory than the device has",
	LaunchTimeout:       "a kernel ran too long",
	HardwareStack:       "a kernel broke its stack",
	IllegalInstruction:  "a kernel has an instruction that the device does not know",
	MisalignedAddress:   "a kernel used an address that is not aligned",
	InvalidAddressSpace: "a kernel used an address of the wrong kind of memory",
	InvalidPC:           "a kernel jumped where no instruction is",
	LaunchFailed:        "a kernel failed",
	PeerEnabled:         "the device has access to the peer already",
	SystemNotReady:      "the system is not ready: the fabric manager must run (systemctl status nvidia-fabricmanager)",
	DriverMismatch:      "the driver's library and its kernel module are of different releases: restart the machine, or load the module anew",
	CompatNotSupported:  "the compatibility library does not support this device: remove it from the library path",
	CaptureUnsupported:  "not allowed while a stream is captured",
	CaptureInvalidated:  "the capture was made invalid by an earlier call",
	CaptureUnjoined:     "a stream that joined the capture was not joined back",
	CaptureIsolation:    "the capture would wait for work outside of it",
	CaptureImplicit:     "the capture would wait for the legacy stream",
	CapturedEvent:       "the event was recorded in a capture",
	CaptureWrongThread:  "the capture was begun by another thread",
	Unknown:             "unknown error: see dmesg for messages of NVRM or Xid",
}

// String returns the meaning of the result.
func (r Result) String() string {
	if w := words[r]; w != "" {
		return w
	}
	return "CUDA result " + strconv.Itoa(int(r))
}

// Error is a call that failed.
type Error struct {
	Call   string // of CUDA, such as cuMemAlloc
	Device int    // negative: no device was named
	Result Result
	Detail string // what is known beside, may be empty
}

// Error implements error.
func (e *Error) Error() string {
	s := e.Call
	if e.Device >= 0 {
		s += fmt.Sprintf(" on device %d", e.Device)
	}
	s += ": " + e.Result.String()
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	return s
}

// Is makes errors of results the errors of this package.
func (e *Error) Is(target error) bool {
	switch target {
	case ErrOutOfMemory:
		return e.Result == OutOfMemory
	case ErrNoDevice:
		return e.Result == NoDevice
	case ErrTooOld:
		return e.Result == UnsupportedPTX
	case ErrInvalid:
		return e.Result == InvalidValue || e.Result == InvalidHandle
	default:
		return false
	}
}

// IsContextLost reports whether an error means that the device cannot be used by this
// process any more, whatever is called: the worker must end, and its process.
func IsContextLost(err error) bool {
	var e *Error
	if !errors.As(err, &e) {
		return false
	}
	switch e.Result {
	case UncorrectableECC, IllegalAddress, LaunchTimeout, HardwareStack, IllegalInstruction, MisalignedAddress,
		InvalidAddressSpace, InvalidPC, LaunchFailed, Deinitialized, Unknown:
		return true
	default:
		return false
	}
}
