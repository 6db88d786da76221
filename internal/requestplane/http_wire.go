package requestplane

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// httpWire is a connection that carries HTTP. It remembers how it ended.
type httpWire struct {
	net.Conn
	watch goAwayWatch // used by writes, which HTTP serializes

	// On a server:
	proved bool        // the client is a node, by the handshake
	secure bool        // the connection is encrypted
	admit  func()      // called when a stranger has shown a token; nil for a node
	onGone func()      // called once when the connection has ended
	calls  httpCalls   // that can be stopped
	held   atomic.Bool // Close is ignored: the server ends the connection itself

	once sync.Once
	gone chan struct{} // closed after err is set
	err  error         // why the connection ended
}

func newHTTPWire(conn net.Conn) *httpWire {
	return &httpWire{Conn: conn, gone: make(chan struct{}), watch: goAwayWatch{seen: make(chan struct{})}}
}

// Read implements [net.Conn].
func (w *httpWire) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	var late net.Error
	if err != nil && (!errors.As(err, &late) || !late.Timeout()) {
		why := err
		if errors.Is(err, io.EOF) {
			why = errors.New("closed by peer")
		}
		w.ended(why)
	}
	return n, err
}

// Write implements [net.Conn].
func (w *httpWire) Write(p []byte) (int, error) {
	n, err := w.Conn.Write(p)
	w.watch.wrote(p[:n])
	return n, err
}

// Close implements [net.Conn]. HTTP calls it; if the connection has not ended yet, the peer
// does not answer.
func (w *httpWire) Close() error {
	if w.held.Load() {
		return nil
	}
	return w.end(errors.New("peer does not answer"))
}

// end closes the connection.
func (w *httpWire) end(why error) error {
	w.ended(why)
	return w.Conn.Close()
}

// ended records why the connection ended. The first reason is kept.
func (w *httpWire) ended(why error) {
	w.once.Do(func() {
		w.err = why
		close(w.gone)
		if w.onGone != nil {
			w.onGone()
		}
	})
}

// reason returns why the connection ended, nil while it is open.
func (w *httpWire) reason() error {
	select {
	case <-w.gone:
		return w.err
	default:
		return nil
	}
}

// hangUp waits until the last bytes of a connection that is being shut down are written,
// signals the end to the peer and waits for it to close its side. Closing at once would
// let the kernel discard bytes that the peer has not read yet.
func (w *httpWire) hangUp(limit time.Duration) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-w.watch.seen:
	case <-w.gone:
		return
	case <-timer.C:
		return
	}
	if cw, ok := w.Conn.(interface{ CloseWrite() error }); !ok || cw.CloseWrite() != nil {
		return
	}
	select {
	case <-w.gone:
	case <-timer.C:
	}
}

// goAwayWatch follows the HTTP/2 frames that a server writes, to see when GOAWAY is out:
// all that was written before it has reached the kernel then. HTTP/2 in net/http has no
// other sign that its buffers are empty.
type goAwayWatch struct {
	seen   chan struct{}
	header [9]byte // of the current frame
	have   int     // bytes of header
	left   int     // bytes of the frame's payload
	over   bool    // seen is closed
}

const frameGoAway = 0x7 // RFC 9113, section 6.8

func (g *goAwayWatch) wrote(p []byte) {
	for len(p) > 0 && !g.over {
		if g.have < len(g.header) {
			n := copy(g.header[g.have:], p)
			g.have, p = g.have+n, p[n:]
			if g.have < len(g.header) {
				return
			}
			g.left = int(binary.BigEndian.Uint32(g.header[:4]) >> 8)
		}
		n := min(g.left, len(p))
		g.left, p = g.left-n, p[n:]
		if g.left > 0 {
			return
		}
		g.have = 0
		if g.header[3] == frameGoAway {
			g.over = true
			close(g.seen)
		}
	}
}
