//go:build linux

package fenced

import "time"

// end shuts all fences after the connection has ended, and reports whether no access
// is inside one and no region is lent.
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
	if in.fences.regions().shut() {
		in.allReturned()
	}
	return quiet && len(in.lent) == 0
}

// allReturned says that the peer has no region any more.
func (in *inbound) allReturned() {
	for addr := range in.lent {
		in.returned(addr)
	}
}

// drain waits until the peer has left the fences it is inside of and closed the
// regions it was lent, or its process is gone. Until then the grants stay, and so do
// the tickets and regions. A process that is stopped may take for ever; Close waits
// closePatience for regions, which a peer closes when it notices the end, and not for
// accesses, which the agent has waited for.
func (in *inbound) drain() {
	began := time.Now()
	const longest = 20 * time.Millisecond
	var closing time.Time
	for pause := 100 * time.Microsecond; ; pause = min(2*pause, longest) {
		var isClosing <-chan struct{}
		if closing.IsZero() {
			isClosing = in.t.closing
		}
		select {
		case <-time.After(pause):
		case <-isClosing:
			closing = time.Now()
		}
		if !closing.IsZero() && (in.inside() || time.Since(closing) > closePatience) {
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

// left releases grants whose fences are free, or all if the process is gone,
// and reports whether that was all.
func (in *inbound) left(gone bool) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	if gone || in.fences.regions().quiet() {
		in.allReturned()
	}
	for id, a := range in.accesses {
		if gone || a.fence.quiet() {
			a.release()
			delete(in.accesses, id)
		}
	}
	return len(in.accesses) == 0 && len(in.lent) == 0
}

// inside reports whether an access has not ended.
func (in *inbound) inside() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return len(in.accesses) > 0
}

// abandon keeps grants and regions for ever: their tickets are never revoked.
func (in *inbound) abandon() {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, a := range in.accesses {
		a.released = true
	}
}
