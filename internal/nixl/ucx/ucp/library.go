package ucp

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"unsafe"

	"github.com/dynctl/dynctl/internal/dynlib"
)

// names lists the file names of libucp. The version in them has never changed.
var names = []string{"libucp.so.0"}

// What the binding was written for. Releases before have no memory handle in the
// parameters of a request.
const apiMajor, apiMinor = 1, 13

// Library is the loaded libucp.
type Library struct {
	version string
	fn      functions
}

type functions struct {
	getVersion, getVersionString                 uintptr
	configRead, configModify, configRelease      uintptr
	init, cleanup, contextQuery                  uintptr
	workerCreate, workerDestroy, workerQuery     uintptr
	workerReleaseAddress, progress, getEFD, arm  uintptr
	epCreate, epClose, epFlush                   uintptr
	memMap, memUnmap                             uintptr
	rkeyPack, rkeyRelease, rkeyUnpack, rkeyClose uintptr
	put, get                                     uintptr
	setHandler, amSend                           uintptr
	requestStatus, requestFree                   uintptr
}

func (f *functions) table() map[string]*uintptr {
	return map[string]*uintptr{
		"ucp_get_version": &f.getVersion, "ucp_get_version_string": &f.getVersionString,
		"ucp_config_read": &f.configRead, "ucp_config_modify": &f.configModify, "ucp_config_release": &f.configRelease,
		"ucp_init_version": &f.init, "ucp_cleanup": &f.cleanup, "ucp_context_query": &f.contextQuery,
		"ucp_worker_create": &f.workerCreate, "ucp_worker_destroy": &f.workerDestroy, "ucp_worker_query": &f.workerQuery,
		"ucp_worker_release_address": &f.workerReleaseAddress, "ucp_worker_progress": &f.progress,
		"ucp_worker_get_efd": &f.getEFD, "ucp_worker_arm": &f.arm,
		"ucp_ep_create": &f.epCreate, "ucp_ep_close_nbx": &f.epClose, "ucp_ep_flush_nbx": &f.epFlush,
		"ucp_mem_map": &f.memMap, "ucp_mem_unmap": &f.memUnmap,
		"ucp_rkey_pack": &f.rkeyPack, "ucp_rkey_buffer_release": &f.rkeyRelease, "ucp_ep_rkey_unpack": &f.rkeyUnpack,
		"ucp_rkey_destroy": &f.rkeyClose, "ucp_put_nbx": &f.put, "ucp_get_nbx": &f.get,
		"ucp_worker_set_am_recv_handler": &f.setHandler, "ucp_am_send_nbx": &f.amSend,
		"ucp_request_check_status": &f.requestStatus, "ucp_request_free": &f.requestFree,
	}
}

var loadOnce = sync.OnceValues(load)

// Load loads the library, once per process. It fails where there is none, where it is
// too old, or where this program cannot load libraries ([dynlib.ErrCompiledOut]).
func Load() (*Library, error) { return loadOnce() }

// settings are options that libucs reads when it is loaded.
var settings = [][2]string{
	// Its signal handlers, the default before 1.20, would turn a Go panic into the end of
	// the process.
	{"UCX_HANDLE_ERRORS", "none"},
	// It writes to standard output; what failed is in the statuses, too.
	{"UCX_LOG_LEVEL", "fatal"},
}

func load() (*Library, error) {
	for _, s := range settings {
		if _, set := os.LookupEnv(s[0]); set && s[0] != "UCX_HANDLE_ERRORS" {
			continue
		}
		if err := os.Setenv(s[0], s[1]); err != nil {
			return nil, fmt.Errorf("load UCX: %w", err)
		}
	}
	dl, err := dynlib.Open(names...)
	if errors.Is(err, dynlib.ErrCompiledOut) {
		return nil, fmt.Errorf("load UCX: %w", err)
	}
	if err != nil {
		return nil, fmt.Errorf("load UCX (Debian's package libucx0, others' ucx): %w", err)
	}
	l := &Library{}
	if err := dl.Bind(l.fn.table()); err != nil {
		return nil, fmt.Errorf("load UCX: %w", err)
	}
	var v [3]uint32
	dynlib.Call(l.fn.getVersion, uintptr(unsafe.Pointer(&v[0])), uintptr(unsafe.Pointer(&v[1])), uintptr(unsafe.Pointer(&v[2])))
	l.version = fmt.Sprintf("%d.%d.%d", v[0], v[1], v[2])
	if v[0] != apiMajor || v[1] < apiMinor {
		return nil, fmt.Errorf("load UCX: %s has version %s, want %d.%d or a later %d.x", dl.Name(), l.version, apiMajor, apiMinor, apiMajor)
	}
	callbacks.once.Do(func() {
		callbacks.failed = dynlib.Callback(endpointFailed)
		callbacks.message = dynlib.Callback(messageArrived)
	})
	return l, nil
}

// Version is the library's release, such as "1.13.1".
func (l *Library) Version() string { return l.version }

// at is the memory that C points to.
func at(addr uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&addr)) }

// cstring returns text for C.
func cstring(s string) []byte { return append([]byte(s), 0) }
