//go:build linux

package fenced

import "time"

// end shuts all fences after the connection has ended, and reports whether nobody
// is inside one.
func (in *inbound) end() (quiet bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	quiet = true
	for id, a := range in.accesses {
		if !a.released && !a.fence.shut() {
			quiet = false
			continue
		}
		if !a.released {
			a.release()
		}
		delete(in.accesses, id)
	}
	return quiet
}

// drain waits until the peer has left the fences it is inside of, or its process
// is gone. Until then the grants stay, and so do the tickets. A process that is
// stopped may take for ever; Close does not wait for it.
func (in *inbound) drain() {
	began := time.Now()
	const longest = 20 * time.Millisecond
	for pause := 100 * time.Microsecond; ; pause = min(2*pause, longest) {
		select {
		case <-time.After(pause):
		case <-in.t.closing:
			if in.left(in.peer.gone()) {
				return
			}
			in.t.host.Log().Error("nixl peer is still inside a memory access and not waited for", "transport", in.t.Name(),
				"peer", in.from.Name, "pid", in.peer.pid, "since", began)
			in.abandon()
			return
		}
		if gone := in.peer.gone(); in.left(gone) {
			in.t.host.Log().Info("nixl peer has ended its accesses", "transport", in.t.Name(), "peer", in.from.Name,
				"pid", in.peer.pid, "process_gone", gone, "took", time.Since(began))
			return
		}
	}
}

// left releases what nobody is inside of, or everything if the process is gone,
// and reports whether that was all.
func (in *inbound) left(gone bool) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	for id, a := range in.accesses {
		if gone || a.fence.quiet() {
			a.release()
			delete(in.accesses, id)
		}
	}
	return len(in.accesses) == 0
}

// abandon keeps the grants for ever, so that their tickets are never revoked.
func (in *inbound) abandon() {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, a := range in.accesses {
		a.released = true
	}
}
