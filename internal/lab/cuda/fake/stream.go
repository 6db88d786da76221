package fake

import (
	"hash/maphash"
	"maps"
	"slices"
	"time"

	"github.com/dynctl/dynctl/internal/cuda/driver"
)

// clock counts the works of each stream that come before something.
type clock map[uint64]uint64

func (c clock) join(o clock) {
	for s, n := range o {
		c[s] = max(c[s], n)
	}
}

// work is something a stream does.
type work struct {
	what    string
	names   []span   // memory that is known before it runs
	sources [][]byte // host memory that must not change before it runs
	run     func(c *Call)
	took    time.Duration // 0: a microsecond
	instant bool          // takes no time
	kernel  bool
	early   bool // a kernel that may run beside the one before, and does not wait for it

	stream *stream
	at     uint64   // its place in the stream, from 1 on
	sees   clock    // what comes before it, itself included
	after  []*work  // works of other streams that it waits for
	sums   []uint64 // of sources
	ends   time.Duration
	done   bool
}

// lasts returns the duration of the work in virtual time.
func (w *work) lasts() time.Duration {
	if w.took == 0 && !w.instant {
		return time.Microsecond
	}
	return w.took
}

// span is memory of a device, or of the host.
type span struct {
	address uint64
	n       int64
	host    []byte
}

type stream struct {
	id      uint64
	device  int
	last    uint64        // place of the latest work
	ends    time.Duration // of the latest work
	sees    clock         // what comes before the next work
	after   []*work
	pending []*work
	capture *capture // while it is captured
	lane    int      // of the capture
}

// event marks a place in a stream.
type event struct {
	device   int
	timing   bool
	recorded bool
	at       time.Duration // when it is reached
	sees     clock
	work     *work    // the latest of the stream, nil for none
	capture  *capture // that it is recorded in, in place of a stream
	asked    bool     // EventQuery has been answered with no
}

var seed = maphash.MakeSeed()

// StreamCreate implements driver.Driver.
func (d *Driver) StreamCreate(device int) (uint64, error) {
	return d.StreamCreateWithPriority(device, 0)
}

// StreamCreateWithPriority implements driver.Driver; all streams are equal here.
func (d *Driver) StreamCreateWithPriority(device, _ int) (uint64, error) {
	if err := d.enter("cuStreamCreate", device); err != nil {
		return 0, err
	}
	defer d.mu.Unlock()
	s := &stream{id: d.number(), device: device, sees: clock{}}
	d.streams[s.id] = s
	return s.id, nil
}

// stream returns a stream of a device, with the driver locked by enter.
func (d *Driver) stream(call string, device int, id uint64) (*stream, error) {
	s := d.streams[id]
	if s == nil || s.device != device {
		return nil, d.fault(call, device, driver.InvalidHandle, "no stream %#x", id)
	}
	return s, nil
}

// onStream does something with a stream of a device, with the driver locked.
func (d *Driver) onStream(call string, device int, id uint64, do func(s *stream) error) error {
	if err := d.enter(call, device); err != nil {
		return err
	}
	defer d.mu.Unlock()
	s, err := d.stream(call, device, id)
	if err != nil {
		return err
	}
	return do(s)
}

// StreamDestroy implements driver.Driver.
func (d *Driver) StreamDestroy(device int, id uint64) error {
	const call = "cuStreamDestroy"
	if err := d.enter(call, device); err != nil {
		return err
	}
	defer d.mu.Unlock()
	s, err := d.stream(call, device, id)
	if err != nil {
		return err
	}
	if s.capture != nil {
		return d.fault(call, device, driver.CaptureUnsupported, "stream %#x is destroyed", id)
	}
	delete(d.streams, id)
	if len(s.pending) > 0 {
		return d.fault(call, device, driver.InvalidHandle, "stream %#x is destroyed before %s has ended", id, s.pending[0].what)
	}
	return nil
}

// StreamSynchronize implements driver.Driver.
func (d *Driver) StreamSynchronize(device int, id uint64) error {
	const call = "cuStreamSynchronize"
	return d.onStream(call, device, id, func(s *stream) error {
		if s.capture != nil {
			return d.fault(call, device, driver.CaptureUnsupported, "")
		}
		d.settle(s)
		if len(s.pending) > 0 {
			if err := d.finish(call, s.pending[len(s.pending)-1]); err != nil {
				return err
			}
		}
		d.waited(s.sees)
		return nil
	})
}

// StreamWaitEvent implements driver.Driver.
func (d *Driver) StreamWaitEvent(device int, id, event uint64) error {
	const call = "cuStreamWaitEvent"
	return d.onStream(call, device, id, func(s *stream) error {
		e := d.events[event]
		switch {
		case e == nil:
			return d.fault(call, device, driver.InvalidHandle, "no event %#x", event)
		case e.capture != nil && e.capture.lanes[0].stream.capture != e.capture:
			return d.fault(call, device, driver.CapturedEvent, "its capture has ended")
		case s.capture != e.capture && s.capture != nil:
			return d.fault(call, device, driver.CaptureIsolation, "a captured stream waits for an event of another one")
		case e.capture != nil:
			if s.capture == nil {
				e.capture.join(s)
			}
			s.capture.wait(s, event)
			return nil
		case !e.recorded: // as in CUDA, nothing to wait for; here a mistake
			return d.fault(call, device, driver.InvalidHandle, "event %#x was not recorded", event)
		}
		s.wait(*e)
		return nil
	})
}

// wait has later works of the stream come after what an event was recorded behind.
func (s *stream) wait(e event) {
	s.sees.join(e.sees)
	s.ends = max(s.ends, e.at)
	if e.work != nil && !e.work.done {
		s.after = append(s.after, e.work)
	}
}

// settle makes a work of what the stream waits for, so that who waits for the stream waits
// for that, too.
func (d *Driver) settle(s *stream) {
	if len(s.after) > 0 {
		d.push(s, &work{what: "wait for events", run: func(*Call) {}, instant: true})
	}
}

// mark is an event behind all works of a stream.
func (d *Driver) mark(s *stream) event {
	d.settle(s)
	e := event{device: s.device, recorded: true, at: s.ends, sees: maps.Clone(s.sees)}
	if len(s.pending) > 0 {
		e.work = s.pending[len(s.pending)-1]
	}
	return e
}

// EventCreate implements driver.Driver.
func (d *Driver) EventCreate(device int) (uint64, error) { return d.createEvent(device, false) }

// EventCreateWithTiming implements driver.Driver.
func (d *Driver) EventCreateWithTiming(device int) (uint64, error) {
	return d.createEvent(device, true)
}

func (d *Driver) createEvent(device int, timing bool) (uint64, error) {
	if err := d.enter("cuEventCreate", device); err != nil {
		return 0, err
	}
	defer d.mu.Unlock()
	n := d.number()
	d.events[n] = &event{device: device, timing: timing}
	return n, nil
}

// event returns an event of a device, with the driver locked.
func (d *Driver) event(call string, device int, id uint64, recorded bool) (*event, error) {
	e := d.events[id]
	if e == nil || e.device != device {
		return nil, d.fault(call, device, driver.InvalidHandle, "no event %#x", id)
	}
	if recorded && !e.recorded {
		return nil, d.fault(call, device, driver.InvalidHandle, "event %#x was not recorded", id)
	}
	return e, nil
}

// EventDestroy implements driver.Driver.
func (d *Driver) EventDestroy(device int, id uint64) error {
	if err := d.enter("cuEventDestroy", device); err != nil {
		return err
	}
	defer d.mu.Unlock()
	_, err := d.event("cuEventDestroy", device, id, false)
	delete(d.events, id)
	return err
}

// EventRecord implements driver.Driver.
func (d *Driver) EventRecord(device int, id, sid uint64) error {
	const call = "cuEventRecord"
	return d.onStream(call, device, sid, func(s *stream) error {
		e, err := d.event(call, device, id, false)
		if err != nil {
			return err
		}
		timing := e.timing
		if s.capture != nil {
			*e = event{device: device, timing: timing, capture: s.capture}
			s.capture.record(s, id)
			return nil
		}
		*e = d.mark(s)
		e.timing = timing
		return nil
	})
}

// EventQuery implements driver.Driver. Of work that has not run it first says that it
// has not ended, and then lets it run.
func (d *Driver) EventQuery(device int, id uint64) (ended bool, err error) {
	err = d.awaitEvent("cuEventQuery", device, id, func(e *event) bool {
		ended = e.asked || e.work == nil || e.work.done
		e.asked = true
		return ended
	})
	return ended && err == nil, err
}

// EventSynchronize implements driver.Driver.
func (d *Driver) EventSynchronize(device int, id uint64) error {
	return d.awaitEvent("cuEventSynchronize", device, id, func(*event) bool { return true })
}

// EventElapsedTime implements driver.Driver.
func (d *Driver) EventElapsedTime(device int, start, end uint64) (time.Duration, error) {
	const call = "cuEventElapsedTime"
	if err := d.enter(call, device); err != nil {
		return 0, err
	}
	defer d.mu.Unlock()
	var at [2]time.Duration
	for i, id := range []uint64{start, end} {
		e := d.events[id]
		switch {
		case e == nil || e.device != device || !e.recorded || !e.timing:
			return 0, &driver.Error{Call: call, Device: device, Result: driver.InvalidHandle, Detail: "want recorded events with timing"}
		case e.work != nil && !e.work.done:
			return 0, &driver.Error{Call: call, Device: device, Result: driver.NotReady}
		}
		at[i] = e.at
	}
	return at[1] - at[0], nil
}

// awaitEvent lets the work before an event run, if that is wanted.
func (d *Driver) awaitEvent(call string, device int, id uint64, want func(e *event) bool) error {
	if err := d.enter(call, device); err != nil {
		return err
	}
	defer d.mu.Unlock()
	e, err := d.event(call, device, id, true)
	if err != nil || !want(e) {
		return err
	}
	if e.work != nil {
		if err := d.finish(call, e.work); err != nil {
			return err
		}
	}
	d.waited(e.sees)
	return nil
}

// waited notes that the host knows the end of works, and forgets what can conflict with
// nothing any more.
func (d *Driver) waited(c clock) {
	d.host.join(c)
	for _, s := range d.streams {
		if len(s.pending) > 0 {
			return
		}
	}
	for _, m := range d.mem {
		m.history = slices.DeleteFunc(m.history, func(a access) bool { return a.work.at <= d.host[a.work.stream.id] })
	}
}

// enqueue puts work into a stream, or into what the stream records.
func (d *Driver) enqueue(call string, device int, id uint64, w work) error {
	return d.onStream(call, device, id, func(s *stream) error {
		for _, n := range w.names {
			if n.host != nil {
				if m := d.find("host memory", hostAddress(n.host), int64(len(n.host))); m != nil && m.gone {
					return d.fault(call, device, driver.InvalidValue, "%s: %s is freed", w.what, m)
				}
				continue
			}
			if m := d.find("", n.address, n.n); m == nil || m.gone || n.n <= 0 {
				return d.fault(call, device, driver.InvalidValue, "%s: %s", w.what, absent(m))
			}
		}
		if before := s.latest(); w.early && before != nil && before.kernel {
			return d.fault(call, device, driver.InvalidValue, "%s may overlap %s, and does not begin by waiting for it", w.what, before.what)
		}
		if s.capture != nil {
			s.capture.work(s, w)
			return nil
		}
		d.push(s, &w)
		return nil
	})
}

// latest is the work that the next one of a stream comes after, nil for none that is under way.
func (s *stream) latest() *work {
	if s.capture != nil {
		return s.capture.latest(s.lane)
	}
	if n := len(s.pending); n > 0 {
		return s.pending[n-1]
	}
	return nil
}

func absent(m *allocation) string {
	if m == nil {
		return "no memory there"
	}
	return m.String() + ", which is freed"
}

// push makes work the latest of a stream.
func (d *Driver) push(s *stream, w *work) *work {
	s.last++
	s.sees.join(d.host)
	s.sees[s.id] = s.last
	w.stream, w.at, w.sees, w.after = s, s.last, maps.Clone(s.sees), s.after
	s.after = nil
	s.ends += w.lasts()
	w.ends = s.ends
	for _, b := range w.sources {
		w.sums = append(w.sums, maphash.Bytes(seed, b))
	}
	d.eachNamed(w, func(m *allocation) { m.pending++ })
	s.pending = append(s.pending, w)
	return w
}

// eachNamed calls f for each allocation that a work names.
func (d *Driver) eachNamed(w *work, f func(m *allocation)) {
	for _, n := range w.names {
		m := d.find("", n.address, n.n)
		if n.host != nil {
			m = d.find("host memory", hostAddress(n.host), int64(len(n.host)))
		}
		if m != nil {
			f(m)
		}
	}
}

// finish runs a work after those that it comes after, and no others.
func (d *Driver) finish(call string, w *work) error {
	for !w.done {
		next := w.stream.pending[0]
		for _, before := range next.after {
			if err := d.finish(call, before); err != nil {
				return err
			}
		}
		w.stream.pending = w.stream.pending[1:]
		next.done = true
		d.eachNamed(next, func(m *allocation) { m.pending-- })
		c := &Call{d: d, work: next}
		for i, b := range next.sources {
			if maphash.Bytes(seed, b) != next.sums[i] {
				c.mistake(driver.InvalidValue, "the host memory changed before it was copied")
			}
		}
		if next.run(c); c.err != nil {
			return c.err
		}
	}
	return nil
}
