//go:build linux

package fenced

import (
	"fmt"

	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/wire"
)

// call is a request of an initiator that waits for its answer.
type call struct {
	id      uint64
	replies chan reply // capacity 2: granted, then result
	done    func()     // when the target has answered for good; may be nil
	descs   []nixl.Desc

	// guarded by session.mu
	granted bool
	given   bool // nobody waits for the replies any more
}

// reply is an answer. A granted one holds the mapped memory, which the receiver
// releases.
type reply struct {
	err    error
	body   []byte
	permit permit
	pieces []piece
	used   []*mapping
}

// begin sends a request. done is called, once, when the target has answered it.
func (s *session) begin(f frame, descs []nixl.Desc, done func()) (*call, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return nil, s.err
	}
	s.lastID++
	cl := &call{id: s.lastID, replies: make(chan reply, 2), done: done, descs: descs}
	f.id = cl.id
	s.calls[cl.id] = cl
	s.c.send(f)
	return cl, nil
}

// wait returns the next answer. When stop is closed before, the call is given up.
func (s *session) wait(cl *call, stop <-chan struct{}) (reply, error) {
	select {
	case r := <-cl.replies:
		return r, nil
	case <-s.ended:
		s.giveUp(cl)
		return reply{}, s.err
	case <-stop:
		s.giveUp(cl)
		return reply{}, errStopped
	}
}

// errStopped says that the caller of wait did not want to wait any more.
var errStopped = fmt.Errorf("given up: %w", nixl.ErrCanceled)

// giveUp stops waiting for a call and gives its grants back.
func (s *session) giveUp(cl *call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	cl.given = true
	select {
	case r := <-cl.replies:
		s.maps.release(r.used)
		if cl.granted && r.used != nil {
			s.c.send(frame{header: header{kind: kindDone, id: cl.id}})
		}
	default:
	}
}

// granted handles the target's permission to copy.
func (s *session) granted(id uint64, body []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	cl := s.calls[id]
	if cl == nil || cl.descs == nil || cl.granted {
		return fmt.Errorf("permit for %d, which did not request one: %w", id, errProtocol)
	}
	p, where, err := parsePermit(body, s.fences.len(), cl.descs)
	if err != nil {
		return err
	}
	cl.granted = true
	if cl.given {
		s.c.send(frame{header: header{kind: kindDone, id: id}})
		return nil
	}
	pieces, used, ok := s.maps.use(where)
	if !ok {
		return fmt.Errorf("permit for memory that was not handed over: %w", errProtocol)
	}
	cl.replies <- reply{permit: p, pieces: pieces, used: used}
	return nil
}

// result handles the last answer to a call.
func (s *session) result(h header, body []byte) error {
	r := reply{err: wire.ResultError(s.remote.Name, h.status, body)}
	if h.kind == kindProbeInfo {
		r.body = append([]byte(nil), body...)
	}
	s.mu.Lock()
	cl := s.calls[h.id]
	if cl == nil || (cl.descs != nil && !cl.granted && r.err == nil) {
		s.mu.Unlock()
		return fmt.Errorf("answer to %d, which was not asked: %w", h.id, errProtocol)
	}
	delete(s.calls, h.id)
	if !cl.given {
		select {
		case cl.replies <- r:
		default: // never: there is room for both answers
		}
	}
	s.mu.Unlock()
	if cl.done != nil {
		cl.done()
	}
	return nil
}
