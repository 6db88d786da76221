//go:build linux

package ucx

import (
	"context"
	"io"
	"net"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/handshake"
	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/nixltest"
	"github.com/dynctl/dynctl/internal/nixl/ucx/ucp"
	"github.com/dynctl/dynctl/internal/nixl/wire"
)

// patience bounds every wait for the other end.
const patience = 10 * time.Second

func overTCP() Options {
	return Options{AnyNetwork: true, Devices: []string{"lo"}, Settings: map[string]string{"TLS": "tcp"}}
}

// handMade makes ends of connections that say whatever a test wants.
type handMade struct {
	lib *ucp.Library
	e   *engine
}

func newHandMade(t testing.TB) *handMade {
	t.Helper()
	lib, err := ucp.Load()
	if err != nil {
		t.Skip(err) // as on most machines
	}
	ctx, err := lib.NewContext(ucp.Setting{Name: "TLS", Value: "tcp"}, ucp.Setting{Name: "NET_DEVICES", Value: "lo"})
	if err != nil {
		t.Fatal(err)
	}
	e, err := newEngine(lib, ctx)
	if err != nil {
		t.Fatal(err)
	}
	go e.run()
	t.Cleanup(func() {
		e.stop()
		ctx.Close()
	})
	return &handMade{lib, e}
}

// raw is one end of a connection; it is a portOwner that hears everything.
type raw struct {
	t    testing.TB // of one that waits for answers
	h    *handMade
	port *port
	nc   net.Conn
	gone chan struct{} // closed when the other end has closed the socket
	said []byte        // over the socket before
	seq  uint32

	mu     sync.Mutex
	heard  []frame
	ended  bool
	answer func(f frame) // called on the engine's goroutine; may be nil
	peer   []byte        // address to connect to when the first message comes; may be nil
}

func (h *handMade) end() (*raw, error) {
	r := &raw{h: h}
	err := errClosed
	h.e.call(func() { r.port, err = h.e.newPort(r) })
	return r, err
}

func (r *raw) address() []byte { return r.port.w.Address() }

// close ends the connection without a goodbye.
func (r *raw) close() {
	r.h.e.call(func() { r.port.close(true) })
	if r.nc != nil {
		_ = r.nc.Close()
		<-r.gone
	}
}

func (r *raw) frame(f frame) error {
	if r.port.ep == nil && r.peer != nil {
		if err := r.port.connect(r.peer); err != nil {
			return err
		}
	}
	r.mu.Lock()
	r.heard = append(r.heard, f)
	answer := r.answer
	r.mu.Unlock()
	if answer != nil {
		answer(f)
	}
	return nil
}

func (r *raw) data(frame) {}

func (r *raw) broken(error) {
	r.mu.Lock()
	r.ended = true
	r.mu.Unlock()
	r.port.close(true)
}

func (r *raw) parted([]byte)  {}
func (r *raw) step() bool     { return false }
func (r *raw) tick(time.Time) {}

// message sends any bytes; nothing if the connection has ended. It runs on the engine's
// goroutine.
func (r *raw) message(header, body []byte) {
	p := r.port
	if p.w == nil || p.ep == nil || p.failure != nil {
		return
	}
	pin := new(runtime.Pinner)
	for _, b := range [][]byte{header, body} {
		if len(b) > 0 {
			pin.Pin(&b[0])
		}
	}
	req, err := p.ep.Send(header, body)
	if err != nil {
		pin.Unpin()
		p.fail(err)
		return
	}
	p.hot = true
	p.sends = append(p.sends, sending{req, pin, nil})
}

// say sends frames in order.
func (r *raw) say(fs ...frame) {
	r.h.e.call(func() {
		for _, f := range fs {
			r.sayNow(f)
		}
	})
}

func (r *raw) sayNow(f frame) {
	header := make([]byte, headerBytes)
	f.header(header, r.seq)
	r.seq++
	r.message(header, slices.Clone(f.body))
}

// converse sends frames as an initiator does: what follows an access, or its end, waits
// for the answer, as long as the next frame is not of the same kind.
func (r *raw) converse(fs ...frame) {
	r.t.Helper()
	for i, f := range fs {
		r.say(f)
		if i+1 == len(fs) || fs[i+1].kind == f.kind {
			continue
		}
		switch f.kind {
		case kindAccess:
			r.next(kindGranted, f.id)
		case kindDone:
			r.next(kindResult, f.id)
		}
	}
}

// next waits for a frame of a kind with an id.
func (r *raw) next(k kind, id uint64) (found frame) {
	r.t.Helper()
	nixltest.Poll(r.t, "an answer", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		i := slices.IndexFunc(r.heard, func(f frame) bool { return f.kind == k && f.id == id })
		if i >= 0 {
			found = r.heard[i]
			r.heard = slices.Delete(r.heard, i, i+1)
		}
		return i >= 0
	})
	return found
}

// wantEnd waits until the other end has ended the connection: its socket is closed.
func (r *raw) wantEnd() {
	r.t.Helper()
	select {
	case <-r.gone:
	case <-time.After(patience):
		r.t.Error("the connection stays open")
	}
}

// wantUp checks that the connection still answers.
func (r *raw) wantUp() {
	r.t.Helper()
	r.say(frame{kind: kindPing})
	r.next(kindPong, 0)
}

// victim is an agent under attack by somebody who speaks the protocol by hand.
type victim struct {
	*handMade
	agent  *nixl.Agent
	tr     *transport
	region *nixl.Region
	mem    []byte
	last   uint64 // generation; every session of an initiator has its own
}

func newVictim(t testing.TB, size int) *victim {
	t.Helper()
	v := &victim{handMade: newHandMade(t), tr: New(overTCP()).(*transport)}
	v.agent = nixltest.Env{Name: Name, Transports: func() []nixl.Transport { return []nixl.Transport{v.tr} }}.Agent(t, "victim")
	v.region, v.mem = nixltest.Region(t, v.agent, size)
	return v
}

func (v *victim) hello(r *raw) hello {
	v.last++
	return hello{
		token: v.tr.token, generation: v.last, address: r.address(),
		ends: wire.Ends{From: nixl.Identity{Name: "evil", Incarnation: "1"}, To: nixl.Identity{Name: "victim", Incarnation: v.agent.Incarnation()}},
	}
}

// enter is a connection that was let in and has heard a first answer.
func (v *victim) enter(t testing.TB) *raw {
	t.Helper()
	r, err := v.end()
	if err != nil {
		t.Fatal(err)
	}
	r.t = t
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	nc, w, err := dialPeer(ctx, v.tr.ln.Addr().String(), nixltest.Key, v.hello(r))
	if err != nil {
		t.Fatal(err)
	}
	r.nc, r.gone = nc, make(chan struct{})
	go func() {
		defer close(r.gone)
		r.said, _ = io.ReadAll(io.LimitReader(nc, maxHello))
	}()
	t.Cleanup(r.close)
	v.e.call(func() { err = r.port.connect(w.address) })
	if err != nil {
		t.Fatal(err)
	}
	r.wantUp()
	return r
}

// refused counts what the victim has refused for a reason.
func (v *victim) refused(why nixl.RefuseReason) uint64 { return v.agent.Stats().Refused[why] }

// impostor is a target that answers an access as a test wants. Agents know it by the
// metadata of an agent that nobody reaches.
type impostor struct {
	*handMade
	real   *nixl.Agent
	region *nixl.Region
	ln     net.Listener
	wg     sync.WaitGroup
	words  chan string // the last ones of initiators, over their sockets

	mu     sync.Mutex
	tell   welcome
	answer func(r *raw, f frame)
}

func newImpostor(t testing.TB) *impostor {
	t.Helper()
	m := &impostor{handMade: newHandMade(t), words: make(chan string, 64), tell: welcome{silence: time.Second, open: 4, window: 4}}
	var err error
	if m.ln, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	conn := connInfo{addr: m.ln.Addr().String()}.encode()
	m.real = nixltest.Env{Name: Name, Transports: func() []nixl.Transport { return []nixl.Transport{facade{conn: conn}} }}.Agent(t, "impostor")
	m.region, _ = nixltest.Region(t, m.real, 4<<20)
	m.wg.Go(func() {
		for {
			nc, err := m.ln.Accept()
			if err != nil {
				return
			}
			m.wg.Go(func() { m.serve(nc) })
		}
	})
	t.Cleanup(func() {
		_ = m.ln.Close()
		m.wg.Wait()
	})
	return m
}

// serve greets one initiator and leaves when that hangs up.
func (m *impostor) serve(nc net.Conn) {
	defer func() { _ = nc.Close() }()
	if _, _, err := handshake.Accept(nc, handshake.Options{Protocol: spoken, Key: nixltest.Key}, time.Now().Add(patience)); err != nil {
		return
	}
	f, err := readGreeting(nc)
	if err != nil {
		return
	}
	h, err := parseHello(f.body)
	if err != nil {
		return
	}
	r, err := m.end()
	if err != nil {
		return
	}
	defer r.close()
	m.mu.Lock()
	w, answer := m.tell, m.answer
	m.mu.Unlock()
	r.mu.Lock()
	r.peer, r.answer = h.address, func(f frame) { answer(r, f) }
	r.nc, r.gone = nc, make(chan struct{})
	close(r.gone)
	r.mu.Unlock()
	w.address = r.address()
	if writeGreeting(nc, frame{kind: kindWelcome, body: w.encode()}) != nil {
		return
	}
	if f, err = readGreeting(nc); err == nil {
		m.words <- string(f.body)
	}
}

// answers sets what later connections answer.
func (m *impostor) answers(tell welcome, answer func(r *raw, f frame)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tell, m.answer = tell, answer
}

// facade is a transport that is offered and never used.
type facade struct {
	nixl.Transport
	conn []byte
	host func(nixl.Host) // may be nil
}

func (facade) Name() string { return Name }
func (facade) Close() error { return nil }

func (f facade) Start(h nixl.Host) ([]byte, error) {
	if f.host != nil {
		f.host(h)
	}
	return f.conn, nil
}
