package handshake

import (
	"net"
	"slices"
	"sync"
	"time"
)

// LobbySize is the maximum number of connections to a listener in their handshake. It
// exceeds the number of nodes that connect at once after a restart, and costs only some
// MiB.
const LobbySize = 512

// Lobby holds the connections to a listener that have not proved anything yet, at most
// LobbySize. If one more arrives, the oldest connection of the host with the most of them
// is closed. Silent connections, however many, therefore cannot keep peers out. The zero
// Lobby is ready.
type Lobby struct {
	mu     sync.Mutex
	closed bool
	inside []*Guest // the oldest first
}

// Guest is one connection in a lobby.
type Guest struct {
	lobby *Lobby
	conn  net.Conn
	host  string
	shown bool // it was closed to make room
}

// Enter adds a new connection. Callers enter connections in the order in which they
// accept them: else the newest of a flood could pass for an older one. The caller then
// calls Accept or Leave on the Guest. After Close, Enter closes the connection at once.
func (l *Lobby) Enter(conn net.Conn) *Guest {
	g := &Guest{lobby: l, conn: conn, host: hostOf(conn)}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		_ = conn.Close()
		return g
	}
	l.inside = append(l.inside, g)
	if len(l.inside) > LobbySize {
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

// Accept runs [Accept] on the connection, which then leaves the lobby. The error is
// ErrCrowded if the connection was closed to make room for another one.
func (g *Guest) Accept(o Options, deadline time.Time) (net.Conn, Session, error) {
	conn, s, err := Accept(g.conn, o, deadline)
	if g.Leave() {
		err = ErrCrowded
	}
	return conn, s, err
}

// Leave gives back the place of a connection on which Accept is not called. It reports
// whether the connection was closed to make room for another one.
func (g *Guest) Leave() (evicted bool) {
	g.lobby.mu.Lock()
	defer g.lobby.mu.Unlock()
	if i := slices.Index(g.lobby.inside, g); i >= 0 {
		g.lobby.inside = slices.Delete(g.lobby.inside, i, i+1)
	}
	return g.shown
}

// Close closes all connections in the lobby, and those that arrive later.
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
