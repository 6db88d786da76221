package device

import (
	"errors"
	"fmt"
)

// Graph is recorded work of a stream that is replayed as a whole: its launches cost the
// host one call. It has one owner at a time, as a stream.
type Graph struct{ handle uint64 }

// Capture records what f puts into the stream, instead of running it, as a graph that
// lives until the scope is closed. All memory that f names must live as long. f may put
// work into this stream, and into streams that it has wait for this one and that this one
// waits for in the end, also those of other devices; it must not allocate, load or wait.
func (s *Scope) Capture(stream *Stream, f func() error) (*Graph, error) {
	d := s.d
	d.mu.Lock()
	err := s.usable()
	s.recording = err == nil
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		s.recording = false
	}()
	if err == nil {
		err = d.Check(d.driver.StreamBeginCapture(d.index, stream.handle))
	}
	if err != nil {
		return nil, fmt.Errorf("record a graph: %w", err)
	}
	failed := f()
	// A capture that failed is ended, too: the stream is used on.
	handle, err := d.driver.StreamEndCapture(d.index, stream.handle)
	err = d.Check(err)
	if failed != nil {
		if err == nil {
			err = d.driver.GraphDestroy(d.index, handle)
		}
		return nil, fmt.Errorf("record a graph: %w", errors.Join(failed, err))
	}
	if err != nil {
		return nil, fmt.Errorf("record a graph: %w", err)
	}
	return s.keep(&Graph{handle}), nil
}

// keep has the scope free a graph.
func (s *Scope) keep(g *Graph) *Graph {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	s.graphs = append(s.graphs, g)
	return g
}

// Replay puts the work of a graph into the stream.
func (s *Stream) Replay(g *Graph) error {
	return s.d.Check(s.d.driver.GraphLaunch(s.d.index, g.handle, s.handle))
}
