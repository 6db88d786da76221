package tcp

import (
	"bufio"
	"encoding/binary"
	"io"
	"math"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/handshake"
	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/nixltest"
	"github.com/dynctl/dynctl/internal/nixl/wire"
)

// victim is an agent under attack by somebody who speaks the protocol by hand.
type victim struct {
	agent  *nixl.Agent
	tr     *transport
	region *nixl.Region
	mem    []byte
	last   uint64 // generation; every session of an initiator has its own
}

func newVictim(t testing.TB, size int, o Options, change ...func(*nixl.Config)) *victim {
	v := &victim{tr: New(o).(*transport)}
	v.agent = nixltest.Env{Name: Name, Transports: func() []nixl.Transport { return []nixl.Transport{v.tr} }}.Agent(t, "b", change...)
	v.region, v.mem = nixltest.Region(t, v.agent, size)
	return v
}

func (v *victim) hello() hello {
	v.last++
	return hello{
		token: v.tr.token, generation: v.last,
		ends: wire.Ends{From: nixl.Identity{Name: "evil", Incarnation: "1"}, To: nixl.Identity{Name: "b", Incarnation: v.agent.Incarnation()}},
	}
}

// raw is a hand-made connection.
type raw struct {
	t  testing.TB
	nc net.Conn
	br *bufio.Reader
}

func (v *victim) dial(t testing.TB) *raw {
	t.Helper()
	nc, err := net.Dial("tcp", v.tr.ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	if _, _, err := handshake.Connect(nc, handshake.Options{Protocol: spoken, Key: nixltest.Key}, time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	return &raw{t: t, nc: nc, br: bufio.NewReader(nc)}
}

// connect says a proper hello.
func (v *victim) connect(t testing.TB) *raw {
	t.Helper()
	r := v.dial(t)
	r.send(header{kind: kindHello}, v.hello().encode())
	if h, _ := r.next(); h.kind != kindWelcome {
		t.Fatalf("answer of kind %d to a proper hello", h.kind)
	}
	return r
}

func (r *raw) send(h header, body []byte) {
	_, _ = r.nc.Write(frame{h, body}.append(nil)) // the victim may have closed already
}

// next reads a frame; the zero header stands for the end of the connection.
func (r *raw) next() (header, []byte) {
	r.t.Helper()
	var b [headerBytes]byte
	if _, err := io.ReadFull(r.br, b[:]); err != nil {
		if ne, ok := err.(net.Error); ok && ne.Timeout() {
			r.t.Fatal("the victim neither answers nor closes")
		}
		return header{}, nil
	}
	h := parseHeader(&b)
	body := make([]byte, h.length)
	if _, err := io.ReadFull(r.br, body); err != nil {
		return header{}, nil
	}
	return h, body
}

// closed reads up to the end of the connection.
func (r *raw) closed() {
	r.t.Helper()
	for {
		if h, _ := r.next(); h.kind == 0 {
			return
		}
	}
}

func (v *victim) refused(r nixl.RefuseReason) uint64 { return v.agent.Stats().Refused[r] }

func TestForgedHello(t *testing.T) {
	v := newVictim(t, 4096, Options{})
	good := v.hello().encode()
	with := func(change func(*hello)) []byte {
		h := v.hello()
		change(&h)
		return h.encode()
	}
	for _, c := range []struct {
		name string
		kind kind
		body []byte
		says string // in the refusal; "" = no answer
	}{
		{"wrong secret", kindHello, with(func(h *hello) { h.token[3] ^= 1 }), "wrong secret"},
		{"another name", kindHello, with(func(h *hello) { h.ends.To.Name = "c" }), `not "c"`},
		{"old incarnation", kindHello, with(func(h *hello) { h.ends.To.Incarnation = "old" }), "restarted"},
		{"no own name", kindHello, with(func(h *hello) { h.ends.From.Name = "" }), "malformed"},
		{"other version", kindHello, append(append([]byte{}, good[:4]...), append([]byte{9, 0}, good[6:]...)...), "version 9"},
		{"other magic", kindHello, append([]byte{0}, good[1:]...), "no hello"},
		{"truncated", kindHello, good[:len(good)-3], "truncated"},
		{"trailing bytes", kindHello, append(append([]byte{}, good...), 1), "malformed"},
		{"empty", kindHello, nil, "no hello"},
		{"too long", kindHello, make([]byte, helloBytes+1), ""},
		{"write instead", kindWrite, make([]byte, 100), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := v.refused(nixl.RefusedHello)
			r := v.dial(t)
			r.send(header{kind: c.kind}, c.body)
			h, body := r.next()
			if c.says == "" {
				if h.kind != 0 {
					t.Errorf("answer of kind %d", h.kind)
				}
			} else if h.kind != kindResult || h.status >= 0 || !strings.Contains(string(body), c.says) {
				t.Errorf("answer = kind %d, status %d, %q", h.kind, h.status, body)
			}
			r.closed()
			nixltest.Poll(t, "it is counted", func() bool { return v.refused(nixl.RefusedHello) == before+1 })
		})
	}
	if n := len(v.agent.Peers()); n != 0 {
		t.Errorf("%d peers got in", n)
	}
}

// TestForgedFrames sends what no correct initiator sends. The victim closes the
// connection and counts it; its memory stays as it is.
func TestForgedFrames(t *testing.T) {
	const size = 64 << 10
	v := newVictim(t, size, Options{})
	all := v.region.Desc(0, size)
	id := nixltest.Ticket(t, v.agent, nixl.Write, all)
	body := func(total uint64, descs ...nixl.Desc) []byte {
		return access{ticket: id, total: total, descs: descs}.append(nil)
	}
	claim := func(b []byte, count uint32) []byte {
		binary.LittleEndian.PutUint32(b[24:], count)
		return b
	}
	open := func(r *raw) { r.send(header{kind: kindWrite, id: 1}, body(size, all)) }
	for _, c := range []struct {
		name string
		send func(r *raw)
	}{
		{"data without a write", func(r *raw) { r.send(header{kind: kindData, id: 1}, make([]byte, 10)) }},
		{"data at a wrong offset", func(r *raw) { open(r); r.send(header{kind: kindData, id: 1, arg: 4096}, make([]byte, 10)) }},
		{"data at a huge offset", func(r *raw) { open(r); r.send(header{kind: kindData, id: 1, arg: math.MaxUint64}, make([]byte, 10)) }},
		{"more data than announced", func(r *raw) { open(r); r.send(header{kind: kindData, id: 1}, make([]byte, size+1)) }},
		{"empty data", func(r *raw) { open(r); r.send(header{kind: kindData, id: 1}, nil) }},
		{"commit of an incomplete write", func(r *raw) { open(r); r.send(header{kind: kindCommit, id: 1}, nil) }},
		{"commit of nothing", func(r *raw) { r.send(header{kind: kindCommit, id: 5}, nil) }},
		{"the same part twice", func(r *raw) { open(r); open(r) }},
		{"no descriptors", func(r *raw) { r.send(header{kind: kindWrite, id: 1}, body(0)) }},
		{"short access", func(r *raw) { r.send(header{kind: kindWrite, id: 1}, make([]byte, 20)) }},
		{"fewer descriptors than claimed", func(r *raw) { r.send(header{kind: kindWrite, id: 1}, claim(body(size, all), 2)) }},
		{"4 billion descriptors claimed", func(r *raw) { r.send(header{kind: kindRead, id: 1}, claim(body(size, all), math.MaxUint32)) }},
		{"bytes that do not sum up", func(r *raw) { r.send(header{kind: kindWrite, id: 1}, body(size+1, all)) }},
		{"empty descriptor", func(r *raw) { r.send(header{kind: kindWrite, id: 1}, body(size, all, nixl.Desc{Addr: all.Addr})) }},
		{"descriptor that wraps around", func(r *raw) {
			r.send(header{kind: kindWrite, id: 1}, body(8, nixl.Desc{Addr: math.MaxUint64 - 3, Len: 8}))
		}},
		{"lengths that wrap around", func(r *raw) {
			r.send(header{kind: kindWrite, id: 1}, body(0, nixl.Desc{Addr: all.Addr, Len: 1 << 63}, nixl.Desc{Addr: all.Addr, Len: 1 << 63}))
		}},
		{"huge body", func(r *raw) {
			_, _ = r.nc.Write(header{kind: kindWrite, id: 1, length: math.MaxUint32}.append(nil))
		}},
		{"huge notification", func(r *raw) {
			_, _ = r.nc.Write(header{kind: kindNotify, id: 1, length: 1 << 30}.append(nil))
		}},
		{"answer of a target", func(r *raw) { r.send(header{kind: kindResult, id: 1}, nil) }},
		{"welcome", func(r *raw) { r.send(header{kind: kindWelcome}, nil) }},
		{"second hello", func(r *raw) { r.send(header{kind: kindHello}, nil) }},
		{"unknown kind", func(r *raw) { r.send(header{kind: 200}, nil) }},
		{"ping with a body", func(r *raw) { r.send(header{kind: kindPing}, make([]byte, 5)) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := v.refused(nixl.RefusedMalformed)
			r := v.connect(t)
			c.send(r)
			r.closed()
			nixltest.Poll(t, "it is counted", func() bool { return v.refused(nixl.RefusedMalformed) == before+1 })
			nixltest.Poll(t, "accesses end", func() bool { in, _ := v.agent.InFlight(); return in == 0 })
		})
	}
	v.agent.Tickets()
	for i, b := range v.mem {
		if b != 0 {
			t.Fatalf("byte %d was written", i)
		}
	}
}

// TestForgedAccess sends well-formed requests that the tickets do not allow: they
// are refused one by one and the connection goes on.
func TestForgedAccess(t *testing.T) {
	const size = 64 << 10
	v := newVictim(t, size, Options{})
	half := v.region.Desc(0, size/2)
	id := nixltest.Ticket(t, v.agent, nixl.Write, half)
	r := v.connect(t)
	for i, c := range []struct {
		ticket nixl.TicketID
		desc   nixl.Desc
		want   nixl.RefuseReason
	}{
		{nixl.TicketID{}, half, nixl.RefusedNoTicket},
		{nixl.TicketID{1}, half, nixl.RefusedUnknownTicket},
		{id, v.region.Desc(0, size), nixl.RefusedBounds},
		{id, v.region.Desc(size/2, 1), nixl.RefusedBounds},
		{id, nixl.Desc{Addr: half.Addr - 1, Len: 2}, nixl.RefusedBounds},
		{id, nixl.Desc{Addr: half.Addr, Len: 16, DevID: 1}, nixl.RefusedBounds},
		{id, nixl.Desc{Addr: 4096, Len: 16}, nixl.RefusedBounds},
	} {
		n := uint64(i + 1)
		before := v.refused(c.want)
		r.send(header{kind: kindWrite, id: n}, access{ticket: c.ticket, total: c.desc.Len, descs: []nixl.Desc{c.desc}}.append(nil))
		for off := uint64(0); off < c.desc.Len; off += 4096 {
			r.send(header{kind: kindData, id: n, arg: off}, []byte(strings.Repeat("x", int(min(4096, c.desc.Len-off)))))
		}
		r.send(header{kind: kindCommit, id: n}, nil)
		h, body := r.next()
		if h.kind != kindResult || h.id != n || h.status != nixl.ErrNotAllowed {
			t.Fatalf("case %d: answer = %+v %q", i, h, body)
		}
		if got := v.refused(c.want); got != before+1 {
			t.Errorf("case %d: refusals for %s = %d, before %d", i, c.want, got, before)
		}
	}
	// A read with a write ticket, and one that is allowed at last.
	r.send(header{kind: kindRead, id: 100}, access{ticket: id, total: half.Len, descs: []nixl.Desc{half}}.append(nil))
	if h, _ := r.next(); h.kind != kindResult || h.id != 100 || h.status != nixl.ErrNotAllowed {
		t.Errorf("read with a write ticket: %+v", h)
	}
	for i, b := range v.mem {
		if b != 0 {
			t.Fatalf("byte %d was written", i)
		}
	}
	r.send(header{kind: kindWrite, id: 101}, access{ticket: id, total: 3, descs: []nixl.Desc{v.region.Desc(1, 3)}}.append(nil))
	r.send(header{kind: kindData, id: 101}, []byte("abc"))
	r.send(header{kind: kindCommit, id: 101}, nil)
	if h, _ := r.next(); h.kind != kindResult || h.id != 101 || h.status != nixl.Success {
		t.Errorf("proper write: %+v", h)
	}
	v.agent.Tickets()
	if got := string(v.mem[:5]); got != "\x00abc\x00" {
		t.Errorf("memory = %q", got)
	}
}

// TestClaimsAllocateNothing opens connections that announce much and send little.
func TestClaimsAllocateNothing(t *testing.T) {
	v := newVictim(t, 4096, Options{}, func(c *nixl.Config) { c.Limits.Descs = 1 << 20; c.Limits.NotifySize = 64 << 20 })
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	const conns = 8
	for i := range conns {
		r := v.dial(t)
		h := v.hello()
		h.ends.From.Name += string(rune('0' + i))
		r.send(header{kind: kindHello}, h.encode())
		if h, _ := r.next(); h.kind != kindWelcome {
			t.Fatalf("answer of kind %d", h.kind)
		}
		k := kindNotify
		if i%2 == 0 {
			k = kindWrite
		}
		_, _ = r.nc.Write(append(header{kind: k, id: 1, length: 20 << 20}.append(nil), make([]byte, 100)...))
	}
	nixltest.Poll(t, "all are in", func() bool { return len(v.agent.Peers()) == conns })
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 4<<20 {
		t.Errorf("the heap grew by %d bytes", grown)
	}
}

// TestNotifyWindow sends notifications without waiting for answers: the victim does
// not queue them without bound.
func TestNotifyWindow(t *testing.T) {
	v := newVictim(t, 4096, Options{}, func(c *nixl.Config) { c.Limits.NotifyBytes = 1024 })
	r := v.connect(t)
	for i := range uint64(3 * windowCount) {
		r.send(header{kind: kindNotify, id: i + 1}, make([]byte, 500))
	}
	r.closed()
	if n := v.refused(nixl.RefusedMalformed); n != 1 {
		t.Errorf("refusals = %d", n)
	}
}

// TestOpenParts opens writes without end.
func TestOpenParts(t *testing.T) {
	v := newVictim(t, 4096, Options{})
	id := nixltest.Ticket(t, v.agent, nixl.Write, v.region.Desc(0, 4096))
	r := v.connect(t)
	for i := range uint64(3 * maxOpen) {
		r.send(header{kind: kindWrite, id: i + 1}, access{ticket: id, total: 8, descs: []nixl.Desc{v.region.Desc(0, 8)}}.append(nil))
	}
	r.closed()
	nixltest.Poll(t, "it is counted", func() bool { return v.refused(nixl.RefusedLimit) == 1 })
	nixltest.Poll(t, "accesses end", func() bool { in, _ := v.agent.InFlight(); return in == 0 })
	if err := v.agent.RevokeTicket(nixltest.Context(t), id); err != nil {
		t.Fatal(err)
	}
}

// TestUnreadAnswers pings without reading: the victim stops reading, and gives up.
func TestUnreadAnswers(t *testing.T) {
	t.Parallel() // it waits
	v := newVictim(t, 4096, Options{SilenceTimeout: 300 * time.Millisecond, SocketBuffer: 4096})
	r := v.connect(t)
	ping := header{kind: kindPing}.append(nil)
	var many []byte
	for range 10_000 {
		many = append(many, ping...)
	}
	for {
		if _, err := r.nc.Write(many); err != nil {
			break
		}
	}
	nixltest.Poll(t, "the connection ends", func() bool { return len(v.agent.Peers()) == 0 })
}

// TestConnectionLimits opens more connections than allowed. Those that prove nothing take
// no place; peers that never say hello do, for a while.
func TestConnectionLimits(t *testing.T) {
	t.Parallel() // it waits
	v := newVictim(t, 4096, Options{MaxInbound: 4, ConnectTimeout: 2 * time.Second})
	for range 9 {
		nc, err := net.Dial("tcp", v.tr.ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = nc.Close() }()
	}
	for range 4 {
		v.dial(t) // has proved itself, and is silent
	}
	nixltest.Poll(t, "all peers have places", func() bool {
		v.tr.mu.Lock()
		defer v.tr.mu.Unlock()
		return v.tr.accepted == 4
	})
	r := v.dial(t)
	if h, body := r.next(); h.kind != kindResult || !strings.Contains(string(body), "the limit of connections") {
		t.Errorf("one connection too many is told %v %q", h.kind, body)
	}
	r.closed()
	if n := v.refused(nixl.RefusedLimit); n != 1 {
		t.Errorf("refusals = %d", n)
	}
	nixltest.Poll(t, "silent connections are dropped", func() bool { return v.refused(nixl.RefusedHello) == 13 })
	v.connect(t)
}

// TestSessions checks that a peer has one session: the newest.
func TestSessions(t *testing.T) {
	v := newVictim(t, 4096, Options{})
	join := func(incarnation string, generation uint64) (*raw, kind) {
		r := v.dial(t)
		h := v.hello()
		h.ends.From.Incarnation, h.generation = incarnation, generation
		r.send(header{kind: kindHello}, h.encode())
		answer, _ := r.next()
		return r, answer.kind
	}
	first, k := join("1", 2)
	if k != kindWelcome {
		t.Fatalf("answer of kind %d", k)
	}
	if _, k := join("1", 2); k != kindWelcome {
		t.Errorf("second connection of the session: kind %d", k)
	}
	if _, k := join("1", 1); k != kindResult {
		t.Errorf("older session: kind %d", k)
	}
	second, k := join("1", 3)
	if k != kindWelcome {
		t.Errorf("newer session: kind %d", k)
	}
	first.closed()
	if _, k := join("2", 1); k != kindWelcome {
		t.Errorf("restarted peer: kind %d", k)
	}
	second.closed()
	ps := v.agent.Peers()
	if len(ps) != 1 || ps[0].Incarnation != "2" || ps[0].Inbound != 1 {
		t.Errorf("peers = %+v", ps)
	}
}
