package nixl

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// TransferOpts are the optional properties of a transfer.
type TransferOpts struct {
	// Notify is delivered to the peer's agent after the data: for a write when the
	// peer can read it, for a read when it has arrived here. HasNotify sends one even
	// if it is empty. It is sent again with every post.
	Notify    []byte
	HasNotify bool
	// Ticket of the peer; without one the access is refused.
	Ticket TicketID
	// Deadline ends the transfer with ErrCanceled. Zero means Config.TransferTimeout
	// after each post.
	Deadline time.Time
}

// Transfer is a prepared read or write of a descriptor list. It may be posted any
// number of times, one at a time.
type Transfer struct {
	agent         *Agent
	op            Op
	peer          *peer
	local, remote []Desc
	bytes         uint64
	opts          TransferOpts
	staged        bool // memory of a device travels through host memory
	direct        bool // local memory of a device is the transport's to move
	path          *traffic

	mu       sync.Mutex
	status   Status
	err      error
	job      *Job          // while posted
	done     chan struct{} // closed when the latest post ends
	posted   bool
	released bool
	tele     Telemetry
}

// Telemetry holds the measurements of the latest post.
type Telemetry struct {
	Start        time.Time
	PostDuration time.Duration // inside Post
	XferDuration time.Duration // from Post to the end, notification included
	Bytes        uint64
	Descs        int // after joining neighbors
}

// NewTransfer prepares a transfer. local and remote pair up element by element
// with equal lengths; remote holds descriptors of the peer's regions. The peer's
// loaded metadata is fixed here: after the peer was invalidated or loaded again
// under another incarnation, Post fails with ErrNotFound.
func (a *Agent) NewTransfer(op Op, local, remote []Desc, peer string, opts TransferOpts) (*Transfer, error) {
	p := a.current(peer)
	if p == nil {
		return nil, fmt.Errorf("prepare %s with %q: peer is not loaded: %w", op, peer, ErrNotFound)
	}
	fail := func(format string, args ...any) (*Transfer, error) {
		return nil, fmt.Errorf("prepare %s with %q: %s: %w", op, peer, fmt.Sprintf(format, args...), ErrInvalidParam)
	}
	if len(local) == 0 || len(local) != len(remote) {
		return fail("%d local and %d remote descriptors", len(local), len(remote))
	}
	for i := range local {
		if local[i].Len != remote[i].Len {
			return fail("descriptor %d is %d bytes here and %d there", i, local[i].Len, remote[i].Len)
		}
	}
	if err := p.covers(remote); err != nil {
		return nil, fmt.Errorf("prepare %s with %q: %w", op, peer, err)
	}
	for _, descs := range [][]Desc{local, remote} {
		if _, ok := TotalBytes(descs); !ok {
			return fail("empty or overlong descriptor")
		}
	}
	local, remote = mergePairs(local, remote)
	return a.newTransfer(op, local, remote, p, opts)
}

// newTransfer takes lists that pair up, are merged and are the transfer's to keep.
func (a *Agent) newTransfer(op Op, local, remote []Desc, p *peer, opts TransferOpts) (*Transfer, error) {
	fail := func(st Status, format string, args ...any) (*Transfer, error) {
		return nil, fmt.Errorf("prepare %s with %q: %s: %w", op, p.Name, fmt.Sprintf(format, args...), st)
	}
	switch {
	case op > Write:
		return fail(ErrInvalidParam, "unknown operation")
	case len(opts.Notify) > a.limits.NotifySize:
		return fail(ErrInvalidParam, "notification of %d bytes, at most %d", len(opts.Notify), a.limits.NotifySize)
	}
	total, ok := TotalBytes(local)
	if !ok {
		return fail(ErrInvalidParam, "empty or overlong descriptor")
	}
	if len(local) > a.limits.Descs {
		return fail(ErrInvalidParam, "%d descriptors, at most %d", len(local), a.limits.Descs)
	}
	devices, err := a.regions.nameDevices(local)
	if err != nil {
		return nil, fmt.Errorf("prepare %s with %q: %w", op, p.Name, err)
	}
	opts.Notify = slices.Clone(opts.Notify)
	opts.HasNotify = opts.HasNotify || len(opts.Notify) > 0
	staged := p.namesDevice(remote)
	if devices && !staged {
		staged = !a.regions.direct(local, p.transport)
	}
	return &Transfer{
		agent: a, op: op, peer: p, local: local, remote: remote, bytes: total, opts: opts,
		staged: staged, direct: devices && !staged, path: a.paths.path(p.Name, p.transport.Name()),
		status: ErrNotPosted, done: make(chan struct{}),
	}, nil
}

// Post starts the transfer and never blocks. It returns InProgress, or the
// outcome if that is known already; ErrRepostActive while the latest post is still
// running, which does not disturb it.
func (t *Transfer) Post() Status {
	start := time.Now()
	t.mu.Lock()
	switch {
	case t.released:
		t.mu.Unlock()
		return ErrInvalidParam
	case t.job != nil:
		t.mu.Unlock()
		return ErrRepostActive
	}
	if t.posted {
		t.done = make(chan struct{})
	}
	j := &Job{
		Op: t.op, Ticket: t.opts.Ticket, Remote: t.remote, Bytes: t.bytes,
		Notify: t.opts.Notify, HasNotify: t.opts.HasNotify, transfer: t,
	}
	j.done = func(err error) {
		t.agent.forget(j)
		t.end(j, err)
	}
	t.posted, t.job, t.status, t.err = true, j, InProgress, nil
	t.tele = Telemetry{Start: start, Bytes: t.bytes, Descs: len(t.remote)}
	t.mu.Unlock()

	if err := t.agent.start(j); err != nil {
		j.Finish(err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	took := time.Since(start)
	t.path.postTime.observe(took)
	if t.tele.Start.Equal(start) {
		t.tele.PostDuration = took
	}
	if t.job != j && t.job != nil {
		return InProgress // ended, and posted again by someone else meanwhile
	}
	return t.status
}

// Status returns the state of the latest post, ErrNotPosted before the first.
func (t *Transfer) Status() Status {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.status
}

// Err explains a negative status; nil while in progress and after success.
func (t *Transfer) Err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.posted {
		return ErrNotPosted
	}
	return t.err
}

// Done is closed when the latest post has ended, or the first one will end. Local
// memory is not touched any more then.
func (t *Transfer) Done() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.done
}

// Wait waits for the latest post and returns its error.
func (t *Transfer) Wait(ctx context.Context) error {
	select {
	case <-t.Done():
		return t.Err()
	case <-ctx.Done():
		return fmt.Errorf("wait for %s with %q: %w", t.op, t.peer.Name, context.Cause(ctx))
	}
}

// Release gives the transfer up; it cannot be posted again. A running post is
// canceled: Release returns InProgress then, and Done tells when local memory is
// quiet. Otherwise it returns the status the transfer ended with. What a canceled
// write has left at the peer is undefined.
func (t *Transfer) Release() Status {
	t.mu.Lock()
	t.released = true
	j := t.job
	t.mu.Unlock()
	if j != nil {
		j.cancel(fmt.Errorf("%s with %q: released: %w", t.op, t.peer.Name, ErrCanceled))
	}
	return t.Status()
}

// Telemetry returns what was measured, ErrNoTelemetry before a post has ended.
func (t *Transfer) Telemetry() (Telemetry, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.posted || t.job != nil {
		return Telemetry{}, ErrNoTelemetry
	}
	return t.tele, nil
}

// end records the outcome of a job.
func (t *Transfer) end(j *Job, err error) {
	t.mu.Lock()
	if t.job != j {
		t.mu.Unlock()
		return
	}
	t.tele.XferDuration = time.Since(t.tele.Start)
	t.status, t.err, t.job = StatusOf(err), err, nil
	st, tele := t.status, t.tele
	t.path.ended(t.op, st, tele)
	t.agent.stats.ended(t.op, st, t.bytes, tele.XferDuration)
	close(t.done)
	t.mu.Unlock()
	if st == Success && t.opts.HasNotify {
		t.agent.stats.notifyOut.Add(1)
	}
}
