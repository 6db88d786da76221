package ucp

import (
	"fmt"
	"sync"
	"unsafe"

	"github.com/dynctl/dynctl/internal/dynlib"
)

// Worker is a set of connections that are progressed together. It has an address and
// a key of its own that pairs up endpoints: a worker for each connection makes sure that
// the two ends belong together, and closing it ends everything that can arrive over it.
type Worker struct {
	ctx  *Context
	h    uintptr
	id   uintptr // of the callbacks' argument
	efd  int
	addr []byte

	message func(header, data []byte)
	bad     bool // a message came in a form that was not agreed on
	am      requestParam
	rma     requestParam
}

// messageID is the active message that carries frames.
const messageID = 1

// callbacks holds the functions that C calls. They run inside of calls of a worker's goroutine.
var callbacks struct {
	once            sync.Once
	failed, message uintptr

	mu   sync.Mutex
	next uintptr
	args map[uintptr]any // *Worker or *Endpoint
}

func register(v any) uintptr {
	callbacks.mu.Lock()
	defer callbacks.mu.Unlock()
	if callbacks.args == nil {
		callbacks.args = map[uintptr]any{}
	}
	callbacks.next++
	callbacks.args[callbacks.next] = v
	return callbacks.next
}

func registered(id uintptr) any {
	callbacks.mu.Lock()
	defer callbacks.mu.Unlock()
	return callbacks.args[id]
}

func unregister(id uintptr) {
	callbacks.mu.Lock()
	defer callbacks.mu.Unlock()
	delete(callbacks.args, id)
}

// messageArrived is ucp_am_recv_callback_t.
func messageArrived(arg, header, headerSize, data, size, param uintptr) uintptr {
	if w, ok := registered(arg).(*Worker); ok {
		if (*amRecvParam)(at(param)).attr&recvRendezvous != 0 {
			w.bad = true // its data has not come; returning OK refuses it
		} else {
			w.message(bytesAt(header, uint64(headerSize)), bytesAt(data, uint64(size)))
		}
	}
	return uintptr(OK)
}

// endpointFailed is ucp_err_handler_cb_t. The endpoint must not be closed in it.
func endpointFailed(arg, _, status uintptr) uintptr {
	if e, ok := registered(arg).(*Endpoint); ok && e.failed == nil {
		e.failed = statusOf(status)
	}
	return 0
}

// NewWorker makes a worker of the calling goroutine. message is called for each message
// that arrives, inside of Progress; messages may arrive in another order than they were
// sent in. Its arguments are valid during the call, which must not use the worker.
func (c *Context) NewWorker(message func(header, data []byte)) (_ *Worker, err error) {
	fn := &c.lib.fn
	w := &Worker{ctx: c, efd: -1, message: message}
	p := &workerParams{mask: workerParamThreadMode, threadMode: threadSingle}
	if err := check(dynlib.Call(fn.workerCreate, c.h, uintptr(unsafe.Pointer(p)), uintptr(unsafe.Pointer(&w.h)))); err != nil {
		return nil, fmt.Errorf("create worker: %w", err)
	}
	w.id = register(w)
	defer func() {
		if err != nil {
			w.Close()
		}
	}()
	var efd int32
	if err := check(dynlib.Call(fn.getEFD, w.h, uintptr(unsafe.Pointer(&efd)))); err != nil {
		return nil, fmt.Errorf("wake-up of a worker: %w", err)
	}
	w.efd = int(efd)
	a := &workerAttr{mask: workerAttrAddress}
	if err := check(dynlib.Call(fn.workerQuery, w.h, uintptr(unsafe.Pointer(a)))); err != nil {
		return nil, fmt.Errorf("address of a worker: %w", err)
	}
	w.addr = append([]byte(nil), bytesAt(a.address, a.addressLength)...)
	dynlib.Call(fn.workerReleaseAddress, w.h, a.address)
	h := &amHandlerParam{mask: amFieldID | amFlags | amCB | amArg, id: messageID, flags: amWhole, cb: callbacks.message, arg: w.id}
	if err := check(dynlib.Call(fn.setHandler, w.h, uintptr(unsafe.Pointer(h)))); err != nil {
		return nil, fmt.Errorf("message handler of a worker: %w", err)
	}
	w.am = requestParam{mask: opFlags, flags: amEager}
	w.rma = requestParam{mask: opMemh}
	return w, nil
}

// Address returns the worker's address for [Worker.Connect] of a peer.
func (w *Worker) Address() []byte { return w.addr }

// EventFD becomes readable when an armed worker has something to do.
func (w *Worker) EventFD() int { return w.efd }

// Progress does what is to be done and reports how much that was.
func (w *Worker) Progress() int {
	return int(uint32(dynlib.Call(w.ctx.lib.fn.progress, w.h)))
}

// Arm makes EventFD tell the next event. It returns false if there was one already:
// Progress must be called again.
func (w *Worker) Arm() (bool, error) {
	switch s := statusOf(dynlib.Call(w.ctx.lib.fn.arm, w.h)); s {
	case OK:
		return true, nil
	case Busy:
		return false, nil
	default:
		return false, fmt.Errorf("arm worker: %w", s)
	}
}

// Sound reports whether all messages came as this package sends them.
func (w *Worker) Sound() bool { return !w.bad }

// Close ends all connections and requests of the worker. When it has returned, nothing
// arrives any more and no local memory is touched.
func (w *Worker) Close() {
	dynlib.Call(w.ctx.lib.fn.workerDestroy, w.h)
	w.h = 0
	unregister(w.id)
}

// bytesAt is memory of C.
func bytesAt(addr uintptr, n uint64) []byte {
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(at(addr)), n)
}
