package handshake

import (
	"net"
	"slices"
	"sync"
)

// Lobby holds the connections to a listener that have not proved anything yet, at most
// Max of them. When one more comes, the one goes that has been there longest of those
// whose host has most: silent connections, however many, cannot keep a peer out for
// longer than it takes to prove itself.
type Lobby struct {
	Max int

	mu     sync.Mutex
	closed bool
	inside []*Guest // the oldest first
}

// Guest is one connection in a lobby.
type Guest struct {
	lobby *Lobby
	conn  net.Conn
	host  string
	shown bool // the door
}

// Enter takes a connection in, whose owner calls Leave. After Close the connection is
// closed at once.
func (l *Lobby) Enter(conn net.Conn) *Guest {
	g := &Guest{lobby: l, conn: conn, host: hostOf(conn)}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		_ = conn.Close()
		return g
	}
	l.inside = append(l.inside, g)
	if len(l.inside) > max(l.Max, 1) {
		l.evict()
	}
	return g
}

func (l *Lobby) evict() {
	count := map[string]int{}
	most := 0
	for _, g := range l.inside {
		count[g.host]++
		most = max(most, count[g.host])
	}
	i := slices.IndexFunc(l.inside, func(g *Guest) bool { return count[g.host] == most })
	g := l.inside[i]
	l.inside = slices.Delete(l.inside, i, i+1)
	g.shown = true
	_ = g.conn.Close()
}

// Leave takes the connection out of the lobby. It reports whether the connection was
// closed to make room for another one.
func (g *Guest) Leave() (evicted bool) {
	g.lobby.mu.Lock()
	defer g.lobby.mu.Unlock()
	if i := slices.Index(g.lobby.inside, g); i >= 0 {
		g.lobby.inside = slices.Delete(g.lobby.inside, i, i+1)
	}
	return g.shown
}

// Len is how many connections are inside.
func (l *Lobby) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.inside)
}

// Close closes all connections that are inside, and those that come later.
func (l *Lobby) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for _, g := range l.inside {
		_ = g.conn.Close()
	}
}

func hostOf(conn net.Conn) string {
	addr := conn.RemoteAddr()
	if addr == nil {
		return ""
	}
	if host, _, err := net.SplitHostPort(addr.String()); err == nil {
		return host
	}
	return addr.String()
}
