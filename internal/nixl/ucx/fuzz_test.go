//go:build linux

package ucx

import (
	"bytes"
	"context"
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/nixltest"
	"github.com/dynctl/dynctl/internal/nixl/wire"
)

// FuzzCodecs parses what peers send as every kind of body; what is taken is encoded to the
// same bytes.
func FuzzCodecs(f *testing.F) {
	desc := nixl.Desc{Addr: 1 << 20, Len: 64, DevID: 3}
	f.Add(connInfo{token: secret{1}, addr: "127.0.0.1:1"}.encode())
	f.Add(hello{ends: wire.Ends{From: nixl.Identity{Name: "a", Incarnation: "1"}, To: nixl.Identity{Name: "b"}}, address: []byte{1}}.encode())
	f.Add(welcome{silence: time.Second, open: 4, window: 4, address: []byte{1}}.encode())
	f.Add(appendRegion(appendRegion(nil, grantedRegion{desc, 5, []byte("key")}), grantedRegion{desc, 6, []byte("k")}))
	f.Add(encodeElsewhere([]nixl.Desc{desc}, []nixl.Desc{{Addr: 7, Len: 64}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		same := func(what string, err error, again []byte) {
			if err == nil && !bytes.Equal(again, b) {
				t.Errorf("%s is encoded as %x, was %x", what, again, b)
			}
		}
		c, err := parseConnInfo(b)
		same("connection data", err, c.encode())
		h, err := parseHello(b)
		same("hello", err, h.encode())
		var again []byte
		rs, err := parseRegions(b)
		for _, r := range rs {
			again = appendRegion(again, r)
		}
		same("regions", err, again)
		asked := []nixl.Desc{desc}
		where, rest, err := parseElsewhere(b, asked)
		if err == nil && !slices.Equal(where, asked) { // the long form of what was asked is allowed, too
			same("places", nil, append(encodeElsewhere(asked, where), rest...))
		}
		if w, err := parseWelcome(b); err == nil && len(b) > 12 && b[12] <= 1 { // any other byte means no
			same("welcome", nil, w.encode())
		}
		if fr, seq, err := parseFrame(b[:min(len(b), headerBytes)], nil); err == nil {
			var header [headerBytes]byte
			fr.header(header[:], seq)
			header[3] = b[3] // not used
			if !bytes.Equal(header[:], b[:headerBytes]) {
				t.Errorf("header is encoded as %x, was %x", header, b[:headerBytes])
			}
		}
	})
}

// script makes fuzz input of frames.
func script(fs ...frame) (b []byte) {
	for _, f := range fs {
		header := make([]byte, headerBytes)
		f.header(header, 0)
		b = append(b, header...)
		b = binary.LittleEndian.AppendUint16(b, uint16(len(f.body)))
		b = append(b, f.body...)
	}
	return b
}

// play sends fuzz input as messages. Each has the number that is due, unless its unused
// byte is set. It runs on the engine's goroutine.
func (r *raw) play(b []byte, first func(body []byte)) {
	for len(b) >= headerBytes+2 {
		header := slices.Clone(b[:headerBytes])
		n := int(binary.LittleEndian.Uint16(b[headerBytes:]))
		b = b[headerBytes+2:]
		body := slices.Clone(b[:min(n, len(b))])
		b = b[len(body):]
		if header[3] == 0 {
			binary.LittleEndian.PutUint32(header[4:], r.seq)
			r.seq++
		}
		if first != nil {
			first(body)
			first = nil
		}
		r.message(header, body)
	}
	if len(b) > 0 {
		r.message(slices.Clone(b), nil) // a header that is too short
	}
}

// FuzzInbound has a target handle messages as if UCX had brought them, hundreds in a
// second and without the library: it survives, keeps to the memory of the ticket, and in
// the end no access is left.
func FuzzInbound(f *testing.F) {
	const size = 8192
	var host nixl.Host
	agent := nixltest.Env{Transports: func() []nixl.Transport {
		return []nixl.Transport{facade{conn: []byte{1}, host: func(h nixl.Host) { host = h }}}
	}}.Agent(f, "target")
	region, mem := nixltest.Region(f, agent, size)
	low := region.Desc(1024, 2048)
	w, r := accessFrame(1, nixl.Write, nixl.TicketID{}, low), accessFrame(1, nixl.Read, nixl.TicketID{}, low)
	f.Add(script(w, frame{kind: kindData, id: 1, body: bytes.Repeat([]byte{7}, 2048)}, doneFrame(1, 2048, flagComplete|flagNotify, "hi")))
	f.Add(script(w, frame{kind: kindData, id: 1, offset: 2000, body: bytes.Repeat([]byte{7}, 48)}, doneFrame(1, 48, 0, "")))
	f.Add(script(r, pullFrame(1, 0, 2048), doneFrame(1, 2048, flagComplete, "")))
	f.Add(script(r, pullFrame(1, 100, 1), pullFrame(1, 2047, 1), frame{kind: kindBye}))
	f.Add(script(frame{kind: kindNotify, id: 3, body: []byte("hi")}, frame{kind: kindPing}, frame{kind: kindProbeClose, body: make([]byte, 16)}))
	f.Add(script(w, accessFrame(1, nixl.Write, nixl.TicketID{}, low)))
	f.Fuzz(func(t *testing.T, b []byte) {
		write, read := nixltest.Ticket(t, agent, nixl.Write, low), nixltest.Ticket(t, agent, nixl.Read, low)
		tr := New(overTCP()).(*transport)
		tr.host, tr.regions = host, &regions{}
		e, err := newEngine(nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		tr.engine = e
		in := &inbound{t: tr, e: e, from: nixl.Identity{Name: "evil", Incarnation: "1"}, accesses: map[uint64]*access{}, handed: map[uint64]bool{}}
		in.port = &port{e: e, owner: in}
		host.InboundUp(Name, in.from)
		for seq := uint32(0); len(b) >= headerBytes+2 && in.port.failure == nil; seq++ {
			header, n := slices.Clone(b[:headerBytes]), int(binary.LittleEndian.Uint16(b[headerBytes:]))
			b = b[headerBytes+2:]
			body := slices.Clone(b[:min(n, len(b))])
			b = b[len(body):]
			if header[3] == 0 {
				binary.LittleEndian.PutUint32(header[4:], seq)
			}
			if kind(header[0]) == kindAccess && len(body) >= len(write) && nixl.TicketID(body) == (nixl.TicketID{}) {
				if header[2]&flagWrite != 0 {
					copy(body, write[:])
				} else {
					copy(body, read[:])
				}
			}
			in.port.take(header, body)
			arrived := in.port.arrived
			in.port.arrived = nil
			for _, m := range arrived {
				due, err := in.port.order.take(m.frame, m.seq)
				for _, f := range due {
					if err == nil {
						err = in.handle(f)
					}
				}
				if err != nil {
					in.port.fail(err)
				}
			}
			e.runQueue() // what was accepted
		}
		in.end(nil)
		for _, id := range []nixl.TicketID{write, read} {
			if err := agent.RevokeTicket(nixltest.Context(t), id); err != nil {
				t.Error(err)
			}
		}
		go e.run() // to its end
		e.stop()
		if in, _ := agent.InFlight(); in != 0 {
			t.Errorf("%d accesses are left", in)
		}
		for _, outside := range [][]byte{mem[:1024], mem[1024+2048:]} {
			if bytes.ContainsFunc(outside, func(r rune) bool { return r != 0 }) {
				t.Fatal("memory outside of the ticket was written")
			}
		}
		nixltest.Drain(t, agent)
	})
}

// FuzzTarget sends messages to an agent that has let the sender in: it survives, keeps to
// the memory of the one ticket, and nothing is left when the sender is gone.
func FuzzTarget(f *testing.F) {
	const size = 8192
	v := newVictim(f, size)
	low := v.region.Desc(1024, 2048)
	// The fuzzer knows no ticket: the zero one stands for it and is filled in below.
	w, r := accessFrame(1, nixl.Write, nixl.TicketID{}, low), accessFrame(1, nixl.Read, nixl.TicketID{}, low)
	f.Add(script(w), script(frame{kind: kindData, id: 1, body: bytes.Repeat([]byte{7}, 2048)}, doneFrame(1, 2048, flagComplete|flagNotify, "hi")))
	f.Add(script(w), script(frame{kind: kindData, id: 1, offset: 2000, body: bytes.Repeat([]byte{7}, 48)}, doneFrame(1, 48, 0, "")))
	f.Add(script(r), script(pullFrame(1, 0, 2048), doneFrame(1, 2048, flagComplete, "")))
	f.Add(script(r), script(pullFrame(1, 100, 1), pullFrame(1, 2047, 1), frame{kind: kindBye}))
	f.Add(script(frame{kind: kindNotify, id: 3, body: []byte("hi")}), script(frame{kind: kindPing}, frame{kind: kindProbe, id: 4}, frame{kind: kindProbeClose, body: make([]byte, 16)}))
	f.Fuzz(func(t *testing.T, before, after []byte) {
		write, read := nixltest.Ticket(t, v.agent, nixl.Write, low), nixltest.Ticket(t, v.agent, nixl.Read, low)
		c := v.enter(t)
		v.e.call(func() {
			c.play(before, func(body []byte) {
				ticket := read
				if len(before) > 2 && before[2]&flagWrite != 0 {
					ticket = write
				}
				if len(body) >= len(ticket) {
					copy(body, ticket[:])
				}
			})
		})
		// Mostly an access, whose bytes may come when it is granted.
		c.say(frame{kind: kindPing})
		nixltest.Poll(t, "an answer, or the end", func() bool {
			select {
			case <-c.gone:
				return true
			default:
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			return slices.ContainsFunc(c.heard, func(f frame) bool { return f.kind == kindPong })
		})
		v.e.call(func() { c.play(after, nil) })
		c.say(frame{kind: kindBye})
		c.wantEnd()
		for _, id := range []nixl.TicketID{write, read} {
			if err := v.agent.RevokeTicket(nixltest.Context(t), id); err != nil {
				t.Fatal(err)
			}
		}
		nixltest.Poll(t, "accesses end", func() bool { in, _ := v.agent.InFlight(); return in == 0 })
		for _, outside := range [][]byte{v.mem[:1024], v.mem[1024+2048:]} {
			if bytes.ContainsFunc(outside, func(r rune) bool { return r != 0 }) {
				t.Fatal("memory outside of the ticket was written")
			}
		}
		nixltest.Drain(t, v.agent)
	})
}

// FuzzInitiator answers an access, and then a pull, with messages: the transfer ends, and
// the initiator keeps to the memory it has given.
func FuzzInitiator(f *testing.F) {
	m := newImpostor(f)
	f.Add(script(frame{kind: kindGranted, id: 1}), script(frame{kind: kindData, id: 1, body: make([]byte, 64)}))
	f.Add(script(resultFrame(1, nixl.ErrNotAllowed)), []byte(nil))
	f.Add(script(frame{kind: kindStop, id: 1}, frame{kind: kindForget, body: make([]byte, wire.DescBytes)}), script(resultFrame(1, nil)))
	f.Add(script(frame{kind: kindGranted, id: 1}), script(frame{kind: kindData, id: 1, offset: 32, body: make([]byte, 64)}, frame{kind: kindPong}))
	f.Fuzz(func(t *testing.T, access, pull []byte) {
		m.answers(welcome{silence: time.Second, open: 4, window: 4}, func(r *raw, f frame) {
			switch f.kind {
			case kindAccess:
				r.play(access, nil)
				r.sayNow(frame{kind: kindPong})
			case kindPull:
				r.play(pull, nil)
				r.sayNow(frame{kind: kindBye})
			}
		})
		a, err := nixl.NewAgent(nixl.Config{Name: "honest", Key: nixltest.Key, Transports: []nixl.Transport{New(overTCP())}})
		if err != nil {
			t.Skip(err) // out of ports: each run takes some
		}
		mem := make(nixltest.Heap, 4096)
		region, err := a.Register(mem, nixl.DRAM)
		if err != nil {
			t.Fatal(err)
		}
		nixltest.Load(t, a, m.real)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		x := nixltest.New(t, a, nixl.Read, []nixl.Desc{region.Desc(1024, 64)}, []nixl.Desc{m.region.Desc(0, 64)}, "impostor",
			nixl.TransferOpts{Deadline: time.Now().Add(200 * time.Millisecond)})
		x.Post()
		select {
		case <-x.Done():
		case <-ctx.Done():
			t.Error("the transfer does not end")
		}
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		for i, c := range mem {
			if c != 0 && (i < 1024 || i >= 1024+64) {
				t.Fatalf("byte %d was written", i)
			}
		}
	})
}
