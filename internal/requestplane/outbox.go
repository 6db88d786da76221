package requestplane

import (
	"io"
	"sync"
)

const maxPending = 64 << 10 // bytes of items that may wait for a stream's writer

// outbox writes the frames of one answer to the stream, from one goroutine. Items that
// arrive during a write are combined into the next one; without a write under way, an
// item is written at once. add blocks while too much is waiting, so that a slow caller
// slows the handler down.
type outbox struct {
	w io.Writer

	mu      sync.Mutex
	more    sync.Cond // the writer waits for frames or the end
	room    sync.Cond // senders wait for space
	buf     []byte
	running bool          // the writer goroutine was started
	ended   bool          // no more frames
	refused error         // error of further sends
	done    chan struct{} // closed when everything is written or discarded
}

func newOutbox(w io.Writer) *outbox {
	o := &outbox{w: w, done: make(chan struct{})}
	o.more.L, o.room.L = &o.mu, &o.mu
	return o
}

// add queues an item frame.
func (o *outbox) add(payload []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.buf) >= maxPending && o.refused == nil {
		o.room.Wait()
	}
	if o.refused != nil {
		return o.refused
	}
	o.buf = appendFrame(o.buf, frameItem, payload)
	o.startLocked()
	return nil
}

func (o *outbox) startLocked() {
	if o.running {
		o.more.Signal()
		return
	}
	o.running = true
	go o.writeLoop()
}

// refuse makes this and later calls of add fail. The first reason is kept. Frames that
// are already queued are still written.
func (o *outbox) refuse(reason error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.refuseLocked(reason)
}

func (o *outbox) refuseLocked(reason error) {
	if o.refused == nil {
		o.refused = reason
	}
	o.room.Broadcast()
}

// finish queues the final frame, lets the writer end, and waits for it.
func (o *outbox) finish(typ byte, payload []byte) {
	o.mu.Lock()
	o.refuseLocked(ErrStreamClosed)
	o.buf = appendFrame(o.buf, typ, payload)
	o.ended = true
	o.endLocked()
	o.mu.Unlock()
	<-o.done
}

// abandon ends the outbox without a final frame. The caller must interrupt a write under
// way.
func (o *outbox) abandon() {
	o.mu.Lock()
	o.refuseLocked(ErrStreamClosed)
	o.buf, o.ended = nil, true
	o.endLocked()
	o.mu.Unlock()
	<-o.done
}

// endLocked tells the writer to end. If no item was ever sent there is no writer, and
// this goroutine does its work.
func (o *outbox) endLocked() {
	if o.running {
		o.more.Signal()
		return
	}
	o.running = true
	o.mu.Unlock()
	o.writeLoop()
	o.mu.Lock()
}

func (o *outbox) writeLoop() {
	defer close(o.done)
	var out []byte
	o.mu.Lock()
	defer o.mu.Unlock()
	for {
		for len(o.buf) == 0 && !o.ended {
			o.more.Wait()
		}
		if len(o.buf) == 0 {
			return
		}
		out, o.buf = o.buf, out[:0]
		o.room.Broadcast()
		o.mu.Unlock()
		_, err := o.w.Write(out)
		o.mu.Lock()
		if err != nil {
			o.refuseLocked(err)
			o.buf, o.ended = nil, true
			return
		}
		if cap(out) > 4*maxPending {
			out = nil // do not keep the buffer of a large item for the rest of the answer
		}
	}
}
