package nixl

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// stagedWindow limits the chunks of a transfer under way at a time: one travels
// while the next is copied from or to the device.
const stagedWindow = 2

// stagedJob carries out a job one or both sides of which are memory of a device, as a
// row of jobs over host memory.
type stagedJob struct {
	a *Agent
	j *Job
	p *peer

	local, remote []Desc
	device        bool   // local memory is a device's, at least some of it
	pair          int    // next to be sent
	off           uint64 // in it

	results chan chunkResult
	ctx     context.Context // ends when the transfer is canceled, with the cause

	mu      sync.Mutex
	running map[*Job]struct{}
}

// chunk is a part of the transfer that travels at a time.
type chunk struct {
	segs   [][]byte // this agent's memory, or what stands in for it
	remote []Desc
	bytes  uint64
	stage  *staged // nil when only the peer's memory is a device's
	began  time.Time
	job    *Job
}

type chunkResult struct {
	*chunk
	err error
}

// A peer whose staging memory is all in use says so with ErrBackend, and is asked
// again, less and less often, for Config.StagingPatience.
const stagedPause = time.Millisecond

// runStaged carries out the job and finishes it. It is one goroutine per posted
// transfer, whose number Limits.Outstanding bounds.
func (a *Agent) runStaged(j *Job) {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	s := &stagedJob{
		a: a, j: j, p: j.transfer.peer, local: j.transfer.local, remote: j.transfer.remote,
		results: make(chan chunkResult, stagedWindow), ctx: ctx, running: map[*Job]struct{}{},
	}
	s.device, _ = a.regions.nameDevices(s.local) // they are in use: they stay registered
	j.OnCancel(func(cause error) {
		cancel(cause)
		s.abort(cause)
	})
	err := s.run()
	if err == nil && j.HasNotify { // once all data have arrived
		err = s.p.transport.Notify(ctx, s.p.Remote, j.Notify)
	}
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	j.Finish(err)
}

// run moves all chunks. When it returns no memory is touched any more.
func (s *stagedJob) run() error {
	var first error
	for open := 0; ; {
		for first == nil && open < stagedWindow && s.pair < len(s.local) {
			slot, ok := s.slot(open == 0)
			if !ok {
				break
			}
			if first = s.begin(slot); first == nil {
				open++
			}
		}
		if open == 0 && first == nil && s.pair < len(s.local) {
			return context.Cause(s.ctx) // it ended while waiting for a slot
		}
		if open == 0 {
			return first
		}
		r := <-s.results // a job ends: at its peer's answer, its deadline or the peer's end
		open--
		err := s.end(r)
		if err != nil && first == nil {
			if s.retry(r) {
				open++
				continue
			}
			first = err
			s.abort(fmt.Errorf("another part failed: %w", ErrCanceled))
		}
		if r.stage != nil {
			r.stage.release()
		}
	}
}

// noSlot marks a chunk whose local memory is the host's.
const noSlot = -1

// slot takes staging memory for the next chunk, if it needs any. It waits only when
// nothing is under way: what is under way may hold the last slots of all.
func (s *stagedJob) slot(wait bool) (slot int, ok bool) {
	if !s.device {
		return noSlot, true
	}
	select {
	case slot = <-s.a.stageOut.slots():
		return slot, true
	default:
	}
	if !wait {
		return 0, false
	}
	select {
	case slot = <-s.a.stageOut.slots():
		return slot, true
	case <-s.ctx.Done():
		return 0, false
	}
}

// begin sends off the next chunk. The slot is its to give back.
func (s *stagedJob) begin(slot int) error {
	local, remote := s.cut()
	segs := make([][]byte, len(local))
	for i, d := range local {
		r, _, err := s.a.regions.find(d)
		if err != nil {
			s.giveBack(slot)
			return err
		}
		segs[i] = r.host(d)
	}
	var st *staged
	if slot != noSlot {
		var err error
		if st, _, err = s.a.stageOut.place(slot, local, segs); err == nil && s.j.Op == Write {
			err = st.load()
		}
		if err != nil {
			s.giveBack(slot)
			return err
		}
	}
	total, _ := TotalBytes(remote)
	s.submit(&chunk{segs: segs, remote: remote, bytes: total, stage: st, began: time.Now()})
	return nil
}

func (s *stagedJob) submit(c *chunk) {
	c.job = &Job{Op: s.j.Op, Ticket: s.j.Ticket, Local: c.segs, Remote: c.remote, Bytes: c.bytes}
	c.job.done = func(err error) { s.results <- chunkResult{c, err} }
	s.mu.Lock()
	s.running[c.job] = struct{}{}
	s.mu.Unlock()
	if s.ctx.Err() != nil { // abort may have missed it
		c.job.Finish(context.Cause(s.ctx))
		return
	}
	s.p.transport.Submit(s.p.Remote, c.job)
}

// retry sends a chunk again that the peer had no room for, and reports whether it did.
func (s *stagedJob) retry(r chunkResult) bool {
	waited := time.Since(r.began)
	if StatusOf(r.err) != ErrBackend || waited > s.a.patience {
		return false
	}
	pause := time.NewTimer(max(stagedPause, waited/4))
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-s.ctx.Done():
		return false
	}
	s.submit(r.chunk)
	return true
}

func (s *stagedJob) giveBack(slot int) {
	if slot != noSlot {
		s.a.stageOut.free <- slot
	}
}

// end takes in the outcome of a chunk.
func (s *stagedJob) end(r chunkResult) error {
	s.mu.Lock()
	delete(s.running, r.job)
	s.mu.Unlock()
	if r.err == nil && r.stage != nil && s.j.Op == Read {
		return r.stage.store()
	}
	return r.err
}

// cut takes the next pairs off the lists, up to a slot full.
func (s *stagedJob) cut() (local, remote []Desc) {
	for left := uint64(StagingChunk); left > 0 && s.pair < len(s.local) && len(local) < s.a.limits.Descs; {
		l, r := s.local[s.pair], s.remote[s.pair]
		n := min(l.Len-s.off, left)
		local = append(local, Desc{Addr: l.Addr + s.off, Len: n, DevID: l.DevID})
		remote = append(remote, Desc{Addr: r.Addr + s.off, Len: n, DevID: r.DevID})
		left -= n
		if s.off += n; s.off == l.Len {
			s.pair, s.off = s.pair+1, 0
		}
	}
	return local, remote
}

// abort makes the chunks under way end early.
func (s *stagedJob) abort(cause error) {
	s.mu.Lock()
	running := make([]*Job, 0, len(s.running))
	for c := range s.running {
		running = append(running, c)
	}
	s.mu.Unlock()
	for _, c := range running {
		c.cancel(cause)
	}
}
