package ucp

import (
	"fmt"
	"runtime"
	"unsafe"

	"github.com/dynctl/dynctl/internal/dynlib"
)

// Endpoint is a connection to a worker of a peer.
type Endpoint struct {
	w      *Worker
	h      uintptr
	id     uintptr
	failed error
	closed bool
}

// Connect makes an endpoint to the worker of an address, which must come from UCX. It
// does not wait: whether the peer is there shows later.
func (w *Worker) Connect(address []byte) (*Endpoint, error) {
	if len(address) == 0 {
		return nil, fmt.Errorf("connect: %w", Status(-7))
	}
	e := &Endpoint{w: w}
	e.id = register(e)
	var pin runtime.Pinner // the call keeps nothing of the address, but C sees it through a structure
	pin.Pin(&address[0])
	defer pin.Unpin()
	p := &epParams{
		mask:    epParamAddress | epParamErrMode | epParamHandler,
		address: uintptr(unsafe.Pointer(&address[0])), errMode: errModePeer, errHandler: callbacks.failed, errArg: e.id,
	}
	if err := check(dynlib.Call(w.ctx.lib.fn.epCreate, w.h, uintptr(unsafe.Pointer(p)), uintptr(unsafe.Pointer(&e.h)))); err != nil {
		unregister(e.id)
		return nil, fmt.Errorf("connect: %w", err)
	}
	return e, nil
}

// Failed is why the connection broke, nil while it has not.
func (e *Endpoint) Failed() error { return e.failed }

// Send sends a message of a short header and data, which may be empty. Neither must
// change, and both must be pinned or off the Go heap, until the request is done.
func (e *Endpoint) Send(header, data []byte) (Request, error) {
	return request(dynlib.Call(e.w.ctx.lib.fn.amSend, e.h, messageID, uintptr(unsafe.Pointer(unsafe.SliceData(header))), uintptr(len(header)),
		uintptr(unsafe.Pointer(unsafe.SliceData(data))), uintptr(len(data)), uintptr(unsafe.Pointer(&e.w.am))))
}

// Put writes local memory into remote memory. mem is what local is part of.
func (e *Endpoint) Put(local []byte, mem *Memory, remote uint64, key *Key) (Request, error) {
	return e.access(e.w.ctx.lib.fn.put, local, mem, remote, key)
}

// Get reads remote memory into local memory. mem is what local is part of.
func (e *Endpoint) Get(local []byte, mem *Memory, remote uint64, key *Key) (Request, error) {
	return e.access(e.w.ctx.lib.fn.get, local, mem, remote, key)
}

func (e *Endpoint) access(fn uintptr, local []byte, mem *Memory, remote uint64, key *Key) (Request, error) {
	e.w.rma.memh = mem.h
	return request(dynlib.Call(fn, e.h, uintptr(unsafe.Pointer(&local[0])), uintptr(len(local)), uintptr(remote), key.h, uintptr(unsafe.Pointer(&e.w.rma))))
}

// Flush returns a request that is done when everything posted before has reached the
// memory of the peer.
func (e *Endpoint) Flush() (Request, error) {
	return request(dynlib.Call(e.w.ctx.lib.fn.epFlush, e.h, uintptr(unsafe.Pointer(&requestParam{}))))
}

// Close gives the endpoint up: with force at once, without after everything was sent.
// The request is done when it is gone.
func (e *Endpoint) Close(force bool) (Request, error) {
	if e.closed {
		return 0, nil
	}
	e.closed = true
	unregister(e.id)
	p := &requestParam{mask: opFlags}
	if force {
		p.flags = closeForce
	}
	return request(dynlib.Call(e.w.ctx.lib.fn.epClose, e.h, uintptr(unsafe.Pointer(p))))
}

// Key is the right to access memory of a peer, over one endpoint.
type Key struct {
	lib *Library
	h   uintptr
}

// Unpack makes a key of what the peer's [Memory.Key] returned.
func (e *Endpoint) Unpack(key []byte) (*Key, error) {
	if len(key) == 0 {
		return nil, fmt.Errorf("unpack remote key: %w", Status(-5))
	}
	k := &Key{lib: e.w.ctx.lib}
	if err := check(dynlib.Call(k.lib.fn.rkeyUnpack, e.h, uintptr(unsafe.Pointer(&key[0])), uintptr(unsafe.Pointer(&k.h)))); err != nil {
		return nil, fmt.Errorf("unpack remote key: %w", err)
	}
	return k, nil
}

// Close forgets the key, before its endpoint's worker is closed.
func (k *Key) Close() { dynlib.Call(k.lib.fn.rkeyClose, k.h) }

// Request is an operation that may still be running. The zero value is done.
type Request uintptr

// request reads what a function that starts an operation returned.
func request(r uintptr) (Request, error) {
	const errors = ^uintptr(0) - 99 // (uintptr)(-100), UCS_ERR_LAST
	if r >= errors {
		return 0, statusOf(r)
	}
	return Request(r), nil
}

func (r Request) done() bool { return r == 0 }

// Test reports whether the operation has ended, and how. A request that has ended is
// freed by that and must not be used again.
func (l *Library) Test(r Request) (done bool, err error) {
	if r.done() {
		return true, nil
	}
	s := statusOf(dynlib.Call(l.fn.requestStatus, uintptr(r)))
	if s == InProgress {
		return false, nil
	}
	dynlib.Call(l.fn.requestFree, uintptr(r))
	if s != OK {
		return true, s
	}
	return true, nil
}

// Free forgets a request that may still be running.
func (l *Library) Free(r Request) {
	if !r.done() {
		dynlib.Call(l.fn.requestFree, uintptr(r))
	}
}
