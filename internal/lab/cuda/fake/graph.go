package fake

import (
	"fmt"
	"maps"

	"github.com/dynctl/dynctl/internal/cuda/driver"
)

// capture records a stream, and those that joined it: work, and events
// that are recorded and waited for, in the order of the calls.
type capture struct {
	lanes []*lane // that of the captured stream first
	steps []step
	marks map[uint64]clock // what comes before each event, by lane
}

// lane is one stream of a capture.
type lane struct {
	stream *stream
	works  uint64
	sees   clock
}

// step is a work of a lane; without one it is an event that is recorded, or waited for.
type step struct {
	lane  int
	work  *work
	event uint64
	waits bool
}

func (c *capture) join(s *stream) {
	s.capture, s.lane = c, len(c.lanes)
	c.lanes = append(c.lanes, &lane{stream: s, sees: clock{}})
}

func (c *capture) work(s *stream, w work) {
	l := c.lanes[s.lane]
	l.works++
	l.sees[uint64(s.lane)] = l.works
	c.steps = append(c.steps, step{lane: s.lane, work: &w})
}

// latest is the last work of a lane.
func (c *capture) latest(lane int) *work {
	for i := len(c.steps) - 1; i >= 0; i-- {
		if s := &c.steps[i]; s.lane == lane && s.work != nil {
			return s.work
		}
	}
	return nil
}

func (c *capture) record(s *stream, event uint64) {
	c.marks[event] = maps.Clone(c.lanes[s.lane].sees)
	c.steps = append(c.steps, step{lane: s.lane, event: event})
}

func (c *capture) wait(s *stream, event uint64) {
	c.lanes[s.lane].sees.join(c.marks[event])
	c.steps = append(c.steps, step{lane: s.lane, event: event, waits: true})
}

// unjoined reports whether a lane has works that the first one does not wait for.
func (c *capture) unjoined() bool {
	for i, l := range c.lanes {
		if c.lanes[0].sees[uint64(i)] < l.works {
			return true
		}
	}
	return false
}

type graph struct {
	device int
	steps  []step
	lanes  []*stream // of which nobody else knows, for all lanes but the first
	last   *work     // the latest launch
}

// StreamBeginCapture implements driver.Driver.
func (d *Driver) StreamBeginCapture(device int, id uint64) error {
	const call = "cuStreamBeginCapture"
	return d.onStream(call, device, id, func(s *stream) error {
		if s.capture != nil {
			return d.fault(call, device, driver.CaptureUnsupported, "stream %#x is captured already", id)
		}
		(&capture{marks: map[uint64]clock{}}).join(s)
		return nil
	})
}

// StreamEndCapture implements driver.Driver.
func (d *Driver) StreamEndCapture(device int, id uint64) (handle uint64, err error) {
	const call = "cuStreamEndCapture"
	err = d.onStream(call, device, id, func(s *stream) error {
		c := s.capture
		if c == nil || s.lane != 0 {
			return d.fault(call, device, driver.CaptureUnsupported, "no capture began with stream %#x", id)
		}
		g := &graph{device: device, steps: c.steps}
		for i, l := range c.lanes {
			l.stream.capture, l.stream.lane = nil, 0
			if i > 0 {
				g.lanes = append(g.lanes, &stream{id: d.number(), device: l.stream.device, sees: clock{}})
			}
		}
		if c.unjoined() {
			return d.fault(call, device, driver.CaptureUnjoined, "stream %#x does not wait for all works of the others", id)
		}
		handle = d.number()
		d.graphs[handle] = g
		return nil
	})
	return handle, err
}

// GraphLaunch implements driver.Driver.
func (d *Driver) GraphLaunch(device int, id, sid uint64) error {
	const call = "cuGraphLaunch"
	if err := d.enter(call, device); err != nil {
		return err
	}
	defer d.mu.Unlock()
	g := d.graphs[id]
	if g == nil || g.device != device {
		return d.fault(call, device, driver.InvalidHandle, "no graph %#x", id)
	}
	s, err := d.stream(call, device, sid)
	if err != nil {
		return err
	}
	if s.capture != nil {
		return d.fault(call, device, driver.CaptureUnsupported, "a graph is launched in a captured stream")
	}
	if g.last != nil {
		s.sees.join(g.last.sees)
		s.ends = max(s.ends, g.last.ends)
		if !g.last.done {
			s.after = append(s.after, g.last)
		}
	}
	if len(g.lanes) > 0 {
		g.last = d.replay(g, s)
	} else {
		g.last = d.push(s, g.whole())
	}
	return nil
}

// whole is a graph of one lane as one work, whose parts nobody can tell apart.
func (g *graph) whole() *work {
	w := &work{what: fmt.Sprintf("graph of %d works", len(g.steps)), run: func(c *Call) {
		for _, s := range g.steps {
			if s.work != nil {
				s.work.run(c)
			}
		}
	}}
	for _, s := range g.steps {
		if s.work != nil {
			w.names, w.sources = append(w.names, s.work.names...), append(w.sources, s.work.sources...)
			w.took += s.work.lasts()
		}
	}
	return w
}

// replay puts the works of a graph of several lanes into streams, and returns one that comes
// after all of them.
func (d *Driver) replay(g *graph, s *stream) *work {
	events := map[uint64]event{}
	for _, step := range g.steps {
		lane := s
		if step.lane > 0 {
			lane = g.lanes[step.lane-1]
		}
		switch {
		case step.work != nil:
			w := *step.work
			d.push(lane, &w)
		case step.waits:
			lane.wait(events[step.event])
		default:
			events[step.event] = d.mark(lane)
		}
	}
	return d.push(s, &work{what: "end of a graph", run: func(*Call) {}, instant: true})
}

// GraphDestroy implements driver.Driver.
func (d *Driver) GraphDestroy(device int, id uint64) error {
	const call = "cuGraphExecDestroy"
	if err := d.enter(call, device); err != nil {
		return err
	}
	defer d.mu.Unlock()
	g := d.graphs[id]
	if g == nil || g.device != device {
		return d.fault(call, device, driver.InvalidHandle, "no graph %#x", id)
	}
	delete(d.graphs, id)
	if g.last != nil && !g.last.done {
		return d.fault(call, device, driver.InvalidHandle, "the graph is destroyed before its launch has ended")
	}
	return nil
}
