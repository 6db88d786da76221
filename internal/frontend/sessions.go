package frontend

import (
	"cmp"
	"container/list"
	"slices"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/router"
)

// Values of SessionSettings.Affinity. Anything else is off.
const (
	// AffinitySoft prefers the worker of the session's last request, by a term of the cost.
	AffinitySoft = "soft"
	// AffinityHard allows only that worker, as long as it serves.
	AffinityHard = "hard"
)

// SessionSettings say how the requests of a session keep together.
type SessionSettings struct {
	Affinity string
	TTL      time.Duration // since the session's last request
}

// maxSessions bounds the sessions that a frontend remembers. Beyond it, the one that was
// quiet longest is forgotten. maxSessionID bounds their ids, in bytes.
const (
	maxSessions  = 64 << 10
	maxSessionID = 256
)

// checkSession refuses an id that is too long to be remembered.
func checkSession(name, id string) *apiError {
	if len(id) > maxSessionID {
		return wrongValue(name, "at most %d bytes are allowed", maxSessionID)
	}
	return nil
}

// sessions remembers the worker of each session's last request.
type sessions struct {
	mu    sync.Mutex
	at    map[sessionKey]*list.Element
	order list.List // of session, the last used first
}

type sessionKey struct{ model, id string }

type session struct {
	key    sessionKey
	worker cluster.InstanceID
	used   time.Time
}

func newSessions() *sessions { return &sessions{at: map[sessionKey]*list.Element{}} }

// find returns the worker of a session, 0 if none is known.
func (s *sessions) find(key sessionKey, now time.Time, ttl time.Duration) cluster.InstanceID {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.at[key]
	if e == nil || now.Sub(e.Value.(session).used) > ttl {
		return 0
	}
	return e.Value.(session).worker
}

// put notes where a request of a session goes.
func (s *sessions) put(key sessionKey, worker cluster.InstanceID, now time.Time, ttl time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.at[key]; e != nil {
		s.order.Remove(e)
	}
	s.at[key] = s.order.PushFront(session{key, worker, now})
	for e := s.order.Back(); len(s.at) > maxSessions || now.Sub(e.Value.(session).used) > ttl; e = s.order.Back() {
		s.drop(e)
	}
}

// forget drops a session that is at a worker which has left or failed.
func (s *sessions) forget(key sessionKey, worker cluster.InstanceID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.at[key]; e != nil && e.Value.(session).worker == worker {
		s.drop(e)
	}
}

func (s *sessions) drop(e *list.Element) {
	s.order.Remove(e)
	delete(s.at, e.Value.(session).key)
}

// keepSession makes a request prefer the worker of its session, or require it. A worker
// that the request names, or that has its sequence already, takes precedence.
func (g *generation) keepSession(r *router.Request, candidates []router.Candidate) {
	g.held = false
	set := g.f.cfg.Settings().Session
	if g.session == "" || g.only.decode != 0 || g.moved != nil {
		return
	}
	id := g.f.sessions.find(g.sessionKey(), time.Now(), set.TTL)
	if id == 0 {
		return
	}
	at := slices.IndexFunc(candidates, func(c router.Candidate) bool { return c.ID == id })
	if at < 0 {
		g.f.sessions.forget(g.sessionKey(), id)
		return
	}
	switch set.Affinity {
	case AffinitySoft:
		r.Session = id
	case AffinityHard:
		g.held = true
		for i := range candidates {
			if c := &candidates[i]; i != at {
				c.Excluded = cmp.Or(c.Excluded, "the session is at "+candidates[at].Worker)
			}
		}
	}
}

// noteSession remembers the worker that the request goes to.
func (g *generation) noteSession(id cluster.InstanceID) {
	if set := g.f.cfg.Settings().Session; g.session != "" && (set.Affinity == AffinitySoft || set.Affinity == AffinityHard) {
		g.f.sessions.put(g.sessionKey(), id, time.Now(), set.TTL)
	}
}

// leaveSession frees the session from a worker that does not serve any more.
func (g *generation) leaveSession(id cluster.InstanceID, why string) {
	if g.session != "" && why != whyOverloaded {
		g.f.sessions.forget(g.sessionKey(), id)
	}
}

func (g *generation) sessionKey() sessionKey { return sessionKey{g.m.name, g.session} }
