package tcp

import (
	"crypto/tls"
	"net"
	"time"

	"github.com/dynctl/dynctl/internal/handshake"
	"github.com/dynctl/dynctl/internal/nixl/wire"
)

// secure returns the settings of TLS for a new connection, which make both sides prove who
// they are; nil without TLS.
func (t *transport) secure() *tls.Config {
	if t.opts.TLS == nil {
		return nil
	}
	o := t.opts.TLS()
	if o.InsecureSkipVerify {
		return o
	}
	c := o.Clone()
	c.ClientAuth = tls.RequireAndVerifyClientCert
	if c.ClientCAs == nil {
		c.ClientCAs = c.RootCAs
	}
	c.MinVersion = max(c.MinVersion, tls.VersionTLS13)
	return c
}

// prove runs the handshake on a connection that was dialed.
func (t *transport) prove(nc net.Conn, addr string) (net.Conn, handshake.Session, error) {
	cfg := t.secure()
	if cfg != nil && cfg.ServerName == "" && !cfg.InsecureSkipVerify {
		cfg.ServerName, _, _ = net.SplitHostPort(addr) // it was dialed: there is a port
	}
	nc, s, err := handshake.Connect(nc, t.shake(cfg), time.Now().Add(t.opts.ConnectTimeout))
	return nc, s, wire.HandshakeError(err)
}

// closeNow closes a connection without the farewell of TLS, which may have to wait.
func closeNow(nc net.Conn) {
	if tc, ok := nc.(*tls.Conn); ok {
		nc = tc.NetConn()
	}
	_ = nc.Close()
}

// writeStaged is writeChunk for connections that encrypt. An interrupted write would
// leave such a connection unusable, and the bytes are copied in any case: they are
// taken out of the memory piece by piece, inside the gate, and sent outside of it. What
// is left of a chunk when the gate is shut is padded with zeros.
func (c *conn) writeStaged(buf []byte, s *sendStream) error {
	if !s.gate.enter() {
		return c.writeControl(buf)
	}
	if c.stage == nil {
		c.stage = make([]byte, 0, stageBytes+maxBatch)
	}
	n := min(chunkBytes, s.total-s.off)
	b := append(append(c.stage[:0], buf...), s.open...)
	b = header{kind: kindData, length: uint32(n), id: s.id, arg: s.off}.append(b)
	open := true
	s.open = nil
	for left := n; left > 0; {
		k := min(left, stageBytes)
		at := len(b)
		if open {
			b = s.copyOut(b, k, c.sums)
			s.gate.leave()
		} else {
			b = append(b, zeros[:min(k, uint64(len(zeros)))]...)
		}
		left -= uint64(len(b) - at)
		s.off += uint64(len(b) - at)
		if open && s.off == s.total {
			s.seal(c.sums)
			b, s.tail = append(b, s.tail...), nil
		}
		if err := c.nc.SetWriteDeadline(time.Now().Add(c.silence)); err != nil {
			return c.lost(err)
		}
		if _, err := c.nc.Write(b); err != nil {
			return c.lost(err)
		}
		b = b[:0]
		if left > 0 && open {
			open = s.gate.enter()
		}
	}
	return nil
}

// copyOut appends the next n bytes of the memory; the gate is entered.
func (s *sendStream) copyOut(b []byte, n uint64, sums bool) []byte {
	for n > 0 {
		p := s.mem.head(n)
		if sums {
			s.sum = checksum(s.sum, p)
		}
		b = append(b, p...)
		s.mem.skip(uint64(len(p)))
		s.moved.Add(uint64(len(p)))
		n -= uint64(len(p))
	}
	return b
}
