//go:build linux

package fenced

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/nixltest"
	"github.com/dynctl/dynctl/internal/nixl/wire"
)

// FuzzBodies parses what peers send as every kind of body.
func FuzzBodies(f *testing.F) {
	at := place{boot: "b", netNS: "net:[1]", pidNS: "pid:[2]", userID: 3}
	f.Add(connInfo{place: at, token: secret{1}, socket: "@x", offer: []byte("o")}.encode())
	f.Add(hello{ends: wire.Ends{From: nixl.Identity{Name: "a", Incarnation: "1"}}}.encode())
	f.Add(welcome{silence: time.Second, fences: 4, window: 4}.encode())
	f.Add(permit{1, 2}.encode())
	f.Add(encodeRegion(nixl.Desc{Addr: 1, Len: 2}, 3, []byte("note")))
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
		w, err := parseWelcome(b)
		same("welcome", err, w.encode())
		base, addr, note, err := parseRegion(b)
		same("region", err, encodeRegion(base, addr, note))
		m, _, err := parsePermit(b, 1<<16, nil)
		same("permit", err, m.encode())
		asked := []nixl.Desc{{Addr: 1, Len: 64}}
		if m, where, err := parsePermit(b, 1<<16, asked); err == nil && len(b) > 8 {
			same("permit elsewhere", err, wire.AppendDesc(m.encode(), where[0]))
		}
	})
}

// FuzzTarget sends bytes to an agent behind a good hello: it survives, and nothing
// of it stays.
func FuzzTarget(f *testing.F) {
	v := newVictim(f)
	ticket := nixltest.Ticket(f, v.agent, nixl.Write, v.region.Desc(0, v.region.Len()))
	access := frame{header: header{kind: kindAccess, id: 1, flags: flagWrite}, body: wire.EncodeAccess(ticket, []nixl.Desc{v.region.Desc(0, 64)})}.append(nil)
	done := frame{header: header{kind: kindDone, id: 1, flags: flagComplete | flagNotify}, body: []byte("x")}.append(nil)
	f.Add(access)
	f.Add(append(bytes.Clone(access), done...))
	f.Add(append(append(bytes.Clone(access), access...), done...))
	f.Add(frame{header: header{kind: kindProbe, id: 3}}.append(nil))
	f.Add(frame{header: header{kind: kindNotify, id: 3}, body: []byte("hello")}.append(nil))
	f.Add(frame{header: header{kind: kindBye}}.append(nil))
	ctx, cancel := context.WithCancel(context.Background())
	read := make(chan struct{})
	go func() {
		defer close(read)
		for {
			select {
			case <-v.agent.Notifications():
			case <-ctx.Done():
				return
			}
		}
	}()
	f.Cleanup(func() { cancel(); <-read })
	f.Fuzz(func(t *testing.T, b []byte) {
		r := v.enter(t)
		_, _ = r.uc.Write(b)
		_ = r.uc.CloseWrite()
		r.wantEnd()
		nixltest.Poll(t, "accesses end", func() bool { in, _ := v.agent.InFlight(); return in == 0 })
	})
}

// FuzzInitiator answers an access with bytes: the session ends with an error.
func FuzzInitiator(f *testing.F) {
	answers := make(chan []byte, 1)
	info := fakeTarget(f, func(c *conn, _ header) { _, _ = c.uc.Write(<-answers) })
	desc := nixl.Desc{Addr: fakeBase, Len: 64}
	p := permit{0, 1}
	f.Add(frame{header: header{kind: kindGranted, id: 1}, body: p.encode()}.append(nil))
	f.Add(frame{header: header{kind: kindRegion}, body: encodeRegion(desc, 1<<20, nil)}.append(nil))
	f.Add(frame{header: header{kind: kindForget}, body: wire.AppendDesc(nil, desc)}.append(nil))
	f.Add(resultFrame(1, nixl.ErrNotAllowed).append(nil))
	f.Add(resultFrame(1, nil).append(nil))
	f.Add(frame{header: header{kind: kindPong}}.append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, tr := fakeSession(t, info)
		answers <- b
		cl, err := s.begin(frame{header: header{kind: kindAccess}, body: wire.EncodeAccess(nixl.TicketID{1}, []nixl.Desc{desc})}, []nixl.Desc{desc}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if r, err := s.wait(cl, t.Context().Done()); err == nil && r.err == nil {
			t.Errorf("answer %+v", r)
		}
		s.jobs.Done()
		if err := tr.Close(); err != nil {
			t.Error(err)
		}
	})
}
