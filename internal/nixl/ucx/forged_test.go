//go:build linux

package ucx

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/handshake"
	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/nixltest"
	"github.com/dynctl/dynctl/internal/nixl/wire"
)

func accessFrame(id uint64, op nixl.Op, ticket nixl.TicketID, descs ...nixl.Desc) frame {
	f := frame{kind: kindAccess, id: id, body: wire.EncodeAccess(ticket, descs)}
	if op == nixl.Write {
		f.flags = flagWrite
	}
	return f
}

func doneFrame(id, moved uint64, flags uint8, note string) frame {
	return frame{kind: kindDone, id: id, flags: flags, body: append(binary.LittleEndian.AppendUint64(nil, moved), note...)}
}

func pullFrame(id, offset, n uint64) frame {
	return frame{kind: kindPull, id: id, offset: offset, body: binary.LittleEndian.AppendUint64(nil, n)}
}

// What is said in place of a hello is refused, counted, and never given to UCX.
func TestForgedHello(t *testing.T) {
	v := newVictim(t, 4096)
	good := func() hello {
		r, err := v.end()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(r.close)
		return v.hello(r)
	}
	change := func(f func(*hello)) []byte {
		h := good()
		f(&h)
		return h.encode()
	}
	for name, f := range map[string]frame{
		"wrong secret":        {kind: kindHello, body: change(func(h *hello) { h.token[3] ^= 1 })},
		"another agent":       {kind: kindHello, body: change(func(h *hello) { h.ends.To.Name = "somebody" })},
		"another incarnation": {kind: kindHello, body: change(func(h *hello) { h.ends.To.Incarnation = "0" })},
		"no name":             {kind: kindHello, body: change(func(h *hello) { h.ends.From.Name = "" })},
		"no address":          {kind: kindHello, body: change(func(h *hello) { h.address = nil })},
		"truncated":           {kind: kindHello, body: good().encode()[:60]},
		"another version":     {kind: kindHello, body: append([]byte{0x44, 0x4e, 0x58, 0x55, 99, 0}, make([]byte, 200)...)},
		"another kind":        {kind: kindPing, body: good().encode()},
		"nothing":             {kind: kindHello},
		"too much":            {kind: kindHello, body: make([]byte, maxHello)},
	} {
		t.Run(name, func(t *testing.T) {
			before := v.refused(nixl.RefusedHello)
			nc, err := net.Dial("tcp", v.tr.ln.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = nc.Close() }()
			if _, _, err := handshake.Connect(nc, handshake.Options{Protocol: spoken, Key: nixltest.Key}, time.Now().Add(patience)); err != nil {
				t.Fatal(err)
			}
			_ = writeGreeting(nc, f) // it may have been refused before all was written
			if f, err := readGreeting(nc); err == nil && f.kind != kindResult {
				t.Errorf("answer of kind %d", f.kind)
			}
			nixltest.Poll(t, "the refusal is counted", func() bool { return v.refused(nixl.RefusedHello) == before+1 })
		})
	}
	v.enter(t)
}

// Messages that no correct initiator sends end the connection, and are counted. Nothing
// is written, no access is left, and the next connection is as good as the first.
func TestForgedMessages(t *testing.T) {
	const size = 4 << 20
	v := newVictim(t, size)
	all := v.region.Desc(0, size)
	write, read := nixltest.Ticket(t, v.agent, nixl.Write, all), nixltest.Ticket(t, v.agent, nixl.Read, all)
	small := v.region.Desc(64, 128)
	w, r := accessFrame(1, nixl.Write, write, small), accessFrame(1, nixl.Read, read, small)
	many := func(n int, f func(id uint64) frame) (fs []frame) {
		for i := range n {
			fs = append(fs, f(uint64(i+1)))
		}
		return fs
	}
	for name, fs := range map[string][]frame{
		"kind 0":                        {{}},
		"unknown kind":                  {{kind: 99}},
		"a target's word":               {{kind: kindGranted, id: 1}},
		"a result":                      {resultFrame(1, nil)},
		"a pong":                        {{kind: kindPong}},
		"access without descriptors":    {accessFrame(1, nixl.Write, write)},
		"access of odd length":          {{kind: kindAccess, id: 1, body: make([]byte, 50)}},
		"access of no bytes":            {accessFrame(1, nixl.Write, write, nixl.Desc{Addr: small.Addr})},
		"access beyond the end of time": {accessFrame(1, nixl.Write, write, nixl.Desc{Addr: small.Addr, Len: ^uint64(0)})},
		"one id twice":                  {w, w},
		"too many accesses":             many(maxOpen+1, func(id uint64) frame { return accessFrame(id, nixl.Read, read, small) }),
		"access by device":              {{kind: kindAccess, id: 1, flags: flagWrite | flagDirect, body: w.body}},
		"data without an access":        {{kind: kindData, id: 7, body: make([]byte, 10)}},
		"data beyond the end":           {w, {kind: kindData, id: 1, offset: 120, body: make([]byte, 9)}},
		"data far beyond the end":       {w, {kind: kindData, id: 1, offset: ^uint64(0) - 3, body: make([]byte, 9)}},
		"data for a read":               {r, {kind: kindData, id: 1, body: make([]byte, 9)}},
		"data after the end":            {w, doneFrame(1, 0, 0, ""), {kind: kindData, id: 1, body: make([]byte, 9)}},
		"pull without an access":        {pullFrame(5, 0, 10)},
		"pull of a write":               {w, pullFrame(1, 0, 10)},
		"pull of nothing":               {r, pullFrame(1, 0, 0)},
		"pull beyond the end":           {r, pullFrame(1, 100, 29)},
		"pull far beyond the end":       {r, pullFrame(1, ^uint64(0), 29)},
		"pull of too much":              {accessFrame(1, nixl.Read, read, all), pullFrame(1, 0, pieceBytes+1)},
		"pull without a number":         {r, {kind: kindPull, id: 1}},
		"end of no access":              {doneFrame(3, 0, 0, "")},
		"end without a number":          {w, {kind: kindDone, id: 1}},
		"end without the bytes":         {w, {kind: kindData, id: 1, body: make([]byte, 8)}, doneFrame(1, 128, flagComplete, "")},
		"end, twice":                    {w, doneFrame(1, 0, 0, ""), doneFrame(1, 0, 0, "")},
		"ticket of a probe":             {{kind: kindProbeClose, body: []byte("x")}},
		"long notification":             {{kind: kindNotify, id: 1, body: make([]byte, v.tr.host.Limits().NotifySize+1)}},
	} {
		t.Run(name, func(t *testing.T) {
			refused := func() uint64 { return v.refused(nixl.RefusedMalformed) + v.refused(nixl.RefusedLimit) }
			before := refused()
			c := v.enter(t)
			c.converse(fs...)
			c.wantEnd()
			nixltest.Poll(t, "it is counted", func() bool { return refused() > before })
			nixltest.Poll(t, "no access is left", func() bool { in, _ := v.agent.InFlight(); return in == 0 })
			if i := bytes.IndexFunc(v.mem[192:], func(r rune) bool { return r != 0 }); i >= 0 {
				t.Errorf("byte %d was written", 192+i)
			}
		})
	}
	c := v.enter(t)
	c.converse(w, frame{kind: kindData, id: 1, body: bytes.Repeat([]byte{7}, 128)}, doneFrame(1, 128, flagComplete, ""))
	if f := c.next(kindResult, 1); f.status != nixl.Success || v.mem[64] != 7 || v.mem[191] != 7 || v.mem[192] != 0 {
		t.Errorf("a correct write ends with %+v", f)
	}
}

// Messages whose numbers do not follow one another, or whose headers are of another size,
// end the connection.
func TestForgedHeaders(t *testing.T) {
	v := newVictim(t, 4096)
	numbered := func(seq uint32) []byte {
		header := make([]byte, headerBytes)
		frame{kind: kindPing}.header(header, seq)
		return header
	}
	for name, headers := range map[string][][]byte{
		"short":         {make([]byte, 4)},
		"long":          {make([]byte, headerBytes+1)},
		"behind":        {numbered(0)},
		"far ahead":     {numbered(maxAhead + 5)},
		"the same":      {numbered(9), numbered(9)},
		"nearly around": {numbered(^uint32(0))},
	} {
		t.Run(name, func(t *testing.T) {
			c := v.enter(t) // its ping was number 0
			c.h.e.call(func() {
				for _, h := range headers {
					c.message(h, nil)
				}
			})
			c.wantEnd()
		})
	}
}

// What a ticket does not allow is refused, and the connection goes on.
func TestForgedAccess(t *testing.T) {
	const size = 8192
	v := newVictim(t, size)
	low := v.region.Desc(1024, 2048)
	write := nixltest.Ticket(t, v.agent, nixl.Write, low)
	c := v.enter(t)
	for i, f := range []struct {
		what   string
		access frame
		why    nixl.RefuseReason
	}{
		{"no ticket", accessFrame(0, nixl.Write, nixl.TicketID{}, low), nixl.RefusedNoTicket},
		{"unknown ticket", accessFrame(0, nixl.Write, nixl.TicketID{1, 2, 3}, low), nixl.RefusedUnknownTicket},
		{"other direction", accessFrame(0, nixl.Read, write, low), nixl.RefusedAccess},
		{"a byte before", accessFrame(0, nixl.Write, write, v.region.Desc(1023, 10)), nixl.RefusedBounds},
		{"a byte after", accessFrame(0, nixl.Write, write, v.region.Desc(3000, 73)), nixl.RefusedBounds},
		{"no memory of ours", accessFrame(0, nixl.Write, write, nixl.Desc{Addr: 1, Len: 1}), nixl.RefusedBounds},
		{"one good, one bad", accessFrame(0, nixl.Write, write, low, v.region.Desc(0, 1)), nixl.RefusedBounds},
	} {
		before := v.refused(f.why)
		f.access.id = uint64(i + 1)
		c.say(f.access)
		if got := c.next(kindResult, f.access.id); got.status != nixl.ErrNotAllowed || v.refused(f.why) != before+1 {
			t.Errorf("%s: status %s, refused %v", f.what, got.status, v.agent.Stats().Refused)
		}
	}
	c.wantUp()

	// Bytes that come after the revocation are not looked at.
	c.converse(accessFrame(50, nixl.Write, write, low), frame{kind: kindData, id: 50, body: bytes.Repeat([]byte{1}, 100)})
	c.wantUp()
	if err := v.agent.RevokeTicket(nixltest.Context(t), write); err != nil {
		t.Fatal(err)
	}
	c.next(kindStop, 50)
	want := slices.Clone(v.mem)
	c.say(frame{kind: kindData, id: 50, offset: 100, body: bytes.Repeat([]byte{2}, 1948)}, doneFrame(50, 2048, flagComplete|flagNotify, "done"))
	if f := c.next(kindResult, 50); f.status == nixl.Success {
		t.Error("a write under a revoked ticket ends well")
	}
	nixltest.Same(t, v.mem, want)
	if n := v.agent.Stats().NotifyReceived; n != 0 {
		t.Errorf("%d notifications of it", n)
	}
}

// A peer that asks again and again and has more notifications out than it was allowed,
// because nobody takes them, is cut off.
func TestForgedNotifications(t *testing.T) {
	v := newVictim(t, 4096)
	c := v.enter(t)
	big := make([]byte, v.tr.host.Limits().NotifySize)
	for id := uint64(1); ; id++ {
		before := v.refused(nixl.RefusedMalformed)
		c.say(frame{kind: kindNotify, id: id, body: big})
		c.mu.Lock()
		ended := c.ended
		c.mu.Unlock()
		if ended || before > 0 {
			break
		}
		if id > 1<<14 {
			t.Fatal("notifications without end are taken in")
		}
	}
	c.wantEnd()
	nixltest.Drain(t, v.agent)
	v.enter(t)
}

// Answers that no correct target gives end the transfer with an error and keep to the
// memory that was given.
func TestForgedAnswers(t *testing.T) {
	m := newImpostor(t)
	const size, at, n = 1 << 20, 1024, 64 << 10
	fair := welcome{silence: 5 * time.Second, open: 4, window: 4}
	type answer = func(r *raw, f frame)
	on := func(k kind, then func(f frame) []frame) answer {
		return func(r *raw, f frame) {
			if f.kind == k {
				for _, a := range then(f) {
					r.sayNow(a)
				}
			}
		}
	}
	granted := func(f frame) frame { return frame{kind: kindGranted, id: f.id} }
	data := func(r *raw, f frame, offset uint64, bytes int) {
		r.sayNow(frame{kind: kindData, id: f.id, offset: offset, body: slices.Repeat([]byte{9}, bytes)})
	}
	for name, c := range map[string]struct {
		tell   welcome
		answer answer
	}{
		"nothing is allowed":    {welcome{silence: time.Second}, func(*raw, frame) {}},
		"endless silence":       {welcome{open: 1, window: 1}, func(*raw, frame) {}},
		"result without an end": {fair, on(kindAccess, func(f frame) []frame { return []frame{resultFrame(f.id, nil)} })},
		"result while it runs":  {fair, on(kindAccess, func(f frame) []frame { return []frame{granted(f), resultFrame(f.id, nil)} })},
		"result of another":     {fair, on(kindAccess, func(f frame) []frame { return []frame{resultFrame(f.id+1, nil)} })},
		"permit for another":    {fair, on(kindAccess, func(f frame) []frame { return []frame{{kind: kindGranted, id: f.id + 1}} })},
		"permit, twice":         {fair, on(kindAccess, func(f frame) []frame { return []frame{granted(f), granted(f)} })},
		"an initiator's word":   {fair, on(kindAccess, func(frame) []frame { return []frame{{kind: kindPing}} })},
		"unknown kind":          {fair, on(kindAccess, func(frame) []frame { return []frame{{kind: 77}} })},
		"farewell":              {fair, on(kindAccess, func(frame) []frame { return []frame{{kind: kindBye, body: []byte("\x1b[2J")}} })},
		"strange status":        {fair, on(kindAccess, func(f frame) []frame { return []frame{{kind: kindResult, id: f.id, status: 100}} })},
		"forgotten region, odd": {fair, on(kindAccess, func(frame) []frame { return []frame{{kind: kindForget, body: []byte("x")}} })},
		"stop before the permit": {fair, on(kindAccess, func(f frame) []frame {
			return []frame{{kind: kindStop, id: f.id}, resultFrame(f.id, nixl.ErrNotAllowed)}
		})},
		"data out of bounds": {fair, func(r *raw, f frame) {
			switch f.kind {
			case kindAccess:
				r.sayNow(granted(f))
			case kindPull: // what nobody pulled is dropped, wherever it says that it belongs
				data(r, f, n, 100)
				data(r, f, ^uint64(0)-10, 100)
				data(r, f, n-10, 100)
				r.sayNow(frame{kind: kindBye})
			}
		}},
		"more data than pulled": {fair, func(r *raw, f frame) {
			switch f.kind {
			case kindAccess:
				r.sayNow(granted(f))
				data(r, f, 0, 1000) // before the pull
			case kindPull:
				for range 3 {
					data(r, f, 0, 40<<10)
				}
				r.sayNow(frame{kind: kindBye})
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			m.answers(c.tell, c.answer)
			a := nixltest.Env{Name: Name, Transports: func() []nixl.Transport { return []nixl.Transport{New(overTCP())} }}.Agent(t, "honest")
			region, mem := nixltest.Region(t, a, size)
			nixltest.Load(t, a, m.real)
			x := nixltest.New(t, a, nixl.Read, []nixl.Desc{region.Desc(at, n)}, []nixl.Desc{m.region.Desc(0, n)}, "impostor", nixl.TransferOpts{})
			err := nixltest.Do(t, x)
			if err == nil {
				t.Error("the transfer ended well")
			} else if strings.ContainsRune(err.Error(), '\x1b') {
				t.Errorf("text of a peer is not made safe: %q", err)
			}
			for i, b := range mem {
				if b != 0 && (i < at || i >= at+n) {
					t.Fatalf("byte %d was written", i)
				}
			}
		})
	}
}

// A target that lets nobody in, or that is none at all, ends the transfer in time.
func TestForgedWelcome(t *testing.T) {
	for name, answer := range map[string][]byte{
		"nothing":       nil,
		"not a frame":   []byte("HTTP/1.1 400 Bad Request\r\n\r\n"),
		"another kind":  {2, 0, 0, 0, byte(kindPing), 0},
		"endless":       {0xff, 0xff, 0xff, 0xff, byte(kindWelcome), 0},
		"empty welcome": {2, 0, 0, 0, byte(kindWelcome), 0},
		"refused":       append([]byte{2 + 4, 0, 0, 0, byte(kindResult), 0xfa}, "why?"...),
	} {
		t.Run(name, func(t *testing.T) {
			newHandMade(t) // skips
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan struct{})
			go func() {
				defer close(done)
				for {
					nc, err := ln.Accept()
					if err != nil {
						return
					}
					if _, _, err := handshake.Accept(nc, handshake.Options{Protocol: spoken, Key: nixltest.Key}, time.Now().Add(patience)); err != nil {
						t.Error(err)
					}
					_, _ = readGreeting(nc)
					_, _ = nc.Write(answer)
					_ = nc.Close()
				}
			}()
			t.Cleanup(func() { _ = ln.Close(); <-done })
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			h := hello{ends: wire.Ends{From: nixl.Identity{Name: "a", Incarnation: "1"}, To: nixl.Identity{Name: "b"}}, address: []byte{1}}
			if _, _, err := dialPeer(ctx, ln.Addr().String(), nixltest.Key, h); err == nil || ctx.Err() != nil {
				t.Errorf("got %v", err)
			}
		})
	}
}
