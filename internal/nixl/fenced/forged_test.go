//go:build linux

package fenced

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dynctl/dynctl/internal/handshake"
	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/nixltest"
	"github.com/dynctl/dynctl/internal/nixl/wire"
	"github.com/dynctl/dynctl/internal/sharedmem"
)

// mapped is the simplest method: that of package shm.
type mapped struct{}

func (mapped) Name() string                              { return "mapped" }
func (mapped) Offer() ([]byte, error)                    { return []byte("offer"), nil }
func (mapped) Reach(nixl.Remote, []byte) (string, error) { return "mapped", nil }
func (mapped) Hand(s nixl.Share) (Handed, error)         { return Handed{FD: s.FD}, nil }

func (mapped) Take(_ Owner, base nixl.Desc, _ uint64, fd int, _ []byte) (Memory, error) {
	mem, err := MapShared(fd, base.Len)
	if err != nil {
		return nil, err
	}
	return &mappedMemory{mem}, nil
}

type mappedMemory struct{ mem []byte }

func (m *mappedMemory) Copy(nixl.Op, [][]byte, []uint64) (uint64, error) {
	panic("nothing is copied here")
}
func (m *mappedMemory) Close() { _ = unix.Munmap(m.mem) }

// victim is an agent that is attacked through its socket.
type victim struct {
	agent  *nixl.Agent
	region *nixl.Region
	info   connInfo
}

func newVictim(t testing.TB) *victim {
	t.Helper()
	var tr *transport
	pool := NewPool(0)
	e := nixltest.Env{Arenas: true, Transports: func() []nixl.Transport {
		tr = pool.Transport(mapped{}, Options{}).(*transport)
		return []nixl.Transport{tr}
	}}
	v := &victim{agent: e.Agent(t, "victim")}
	v.region, _ = e.Region(t, v.agent, 64<<10)
	v.info = connInfo{token: tr.token, socket: tr.ln.Addr().String()}
	return v
}

func (v *victim) hello() hello {
	return hello{
		token: v.info.token,
		ends:  wire.Ends{From: nixl.Identity{Name: "attacker", Incarnation: "1"}, To: nixl.Identity{Name: "victim", Incarnation: v.agent.Incarnation()}},
	}
}

// raw is a hand-made connection.
type raw struct {
	t testing.TB
	*conn
	fences *fences
}

func (v *victim) dial(t testing.TB, first []byte) *raw {
	t.Helper()
	nc, err := net.Dial("unix", v.info.socket)
	if err != nil {
		t.Fatal(err)
	}
	r := &raw{t: t, conn: newConn(nc.(*net.UnixConn), 5*time.Second, true)}
	t.Cleanup(func() {
		_ = r.uc.Close()
		r.dropFDs()
		if r.fences != nil {
			_ = r.fences.close()
		}
	})
	if _, _, err := handshake.Connect(r.uc, handshake.Options{Protocol: spoken, Key: nixltest.Key}, time.Now().Add(5*time.Second)); err != nil {
		t.Fatal(err)
	}
	_, _ = r.uc.Write(first)
	return r
}

// enter is a connection that was let in.
func (v *victim) enter(t testing.TB) *raw {
	t.Helper()
	r := v.dial(t, frame{header: header{kind: kindHello}, body: v.hello().encode()}.append(nil))
	h, body := r.next()
	if h.kind != kindWelcome {
		t.Fatalf("frame of kind %d: %s", h.kind, body)
	}
	w, err := parseWelcome(body)
	if err != nil {
		t.Fatal(err)
	}
	fd := r.claimFD()
	defer func() { _ = unix.Close(fd) }()
	if r.fences, err = mapFences(fd, int(w.fences)); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *raw) next() (header, []byte) {
	r.t.Helper()
	h, body, err := r.read(func(kind) int { return helloBytes })
	if err != nil {
		r.t.Fatal(err)
	}
	return h, body
}

func (r *raw) put(f frame) { _, _ = r.uc.Write(f.append(nil)) }

// wantEnd checks that the connection is closed by the victim.
func (r *raw) wantEnd() {
	r.t.Helper()
	for {
		_, _, err := r.read(func(kind) int { return helloBytes })
		if err != nil {
			if strings.Contains(err.Error(), "silent") {
				r.t.Error("the connection stays open")
			}
			return
		}
	}
}

// ask opens an access to all of the victim's memory and returns its permit.
func (r *raw) ask(v *victim, id uint64, ticket nixl.TicketID) permit {
	r.t.Helper()
	d := v.region.Desc(0, v.region.Len())
	r.put(frame{header: header{kind: kindAccess, id: id, flags: flagWrite}, body: wire.EncodeAccess(ticket, []nixl.Desc{d})})
	for {
		h, body := r.next()
		switch h.kind {
		case kindRegion:
			_ = unix.Close(r.claimFD())
		case kindGranted:
			p, _, err := parsePermit(body[:min(8, len(body))], r.fences.len(), nil)
			if err != nil {
				r.t.Fatal(err)
			}
			return p
		default:
			r.t.Fatalf("frame of kind %d: %s", h.kind, body)
		}
	}
}

func TestHelloIsChecked(t *testing.T) {
	v := newVictim(t)
	change := func(f func(h *hello)) []byte {
		h := v.hello()
		f(&h)
		return frame{header: header{kind: kindHello}, body: h.encode()}.append(nil)
	}
	version := frame{header: header{kind: kindHello}, body: v.hello().encode()}.append(nil)
	version[headerBytes+4]++
	for name, first := range map[string][]byte{
		"wrong secret":      change(func(h *hello) { h.token[3] ^= 1 }),
		"other name":        change(func(h *hello) { h.ends.To.Name = "other" }),
		"other incarnation": change(func(h *hello) { h.ends.To.Incarnation = "other" }),
		"nobody":            change(func(h *hello) { h.ends.From.Name = "" }),
		"other version":     version,
		"no hello":          frame{header: header{kind: kindPing}}.append(nil),
		"huge":              {byte(kindHello), 0, 0, 0, 255, 255, 255, 255, 0, 0, 0, 0, 0, 0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			before := v.agent.Stats().Refused[nixl.RefusedHello]
			v.dial(t, first).wantEnd()
			nixltest.Poll(t, "it is counted", func() bool { return v.agent.Stats().Refused[nixl.RefusedHello] > before })
		})
	}
	v.enter(t) // and a good one is let in
}

func TestTargetRejects(t *testing.T) {
	v := newVictim(t)
	ticket := nixltest.Ticket(t, v.agent, nixl.Write, v.region.Desc(0, v.region.Len()))
	for name, attack := range map[string]func(r *raw){
		"end of nothing":    func(r *raw) { r.put(frame{header: header{kind: kindDone, id: 7}}) },
		"frame of a target": func(r *raw) { r.put(frame{header: header{kind: kindGranted, id: 7}}) },
		"region given back unasked": func(r *raw) {
			r.ask(v, 1, ticket)
			r.put(frame{header: header{kind: kindForgot}, body: wire.AppendDesc(nil, v.region.Desc(0, v.region.Len()))})
		},
		"region given back without body": func(r *raw) { r.put(frame{header: header{kind: kindForgot}}) },
		"unknown frame":                  func(r *raw) { r.put(frame{header: header{kind: 200}}) },
		"access without body":            func(r *raw) { r.put(frame{header: header{kind: kindAccess, id: 1}}) },
		"descriptor that wraps around": func(r *raw) {
			r.put(frame{header: header{kind: kindAccess, id: 1}, body: wire.EncodeAccess(ticket, []nixl.Desc{{Addr: 1 << 63, Len: 1 << 63}})})
		},
		"long notification": func(r *raw) {
			r.put(frame{header: header{kind: kindNotify, id: 1}, body: make([]byte, 65<<10)})
		},
		"one id twice": func(r *raw) {
			r.ask(v, 1, ticket)
			r.put(frame{header: header{kind: kindAccess, id: 1}, body: wire.EncodeAccess(ticket, []nixl.Desc{v.region.Desc(0, 1)})})
		},
		"too many accesses": func(r *raw) {
			for id := range uint64(maxOpen) {
				r.ask(v, id, ticket)
			}
			r.put(frame{header: header{kind: kindAccess, id: maxOpen}, body: wire.EncodeAccess(ticket, []nixl.Desc{v.region.Desc(0, 1)})})
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := v.agent.Stats().Refused[nixl.RefusedMalformed]
			r := v.enter(t)
			attack(r)
			r.wantEnd()
			if name != "long notification" { // refused before it is read
				nixltest.Poll(t, "it is counted", func() bool { return v.agent.Stats().Refused[nixl.RefusedMalformed] > before })
			}
			nixltest.Poll(t, "accesses end", func() bool { in, _ := v.agent.InFlight(); return in == 0 })
		})
	}
}

// TestHeldFence ends a connection, in several ways, while its initiator is inside a
// fence: nothing but leaving it makes the ticket revocable.
func TestHeldFence(t *testing.T) {
	for name, end := range map[string]func(r *raw, id uint64){
		"says done":         func(r *raw, id uint64) { r.put(frame{header: header{kind: kindDone, id: id, flags: flagComplete}}) },
		"says bye":          func(r *raw, _ uint64) { r.put(frame{header: header{kind: kindBye}}) },
		"closes its socket": func(r *raw, _ uint64) { _ = r.uc.Close() },
		"nothing":           func(*raw, uint64) {},
	} {
		t.Run(name, func(t *testing.T) {
			v := newVictim(t)
			ticket := nixltest.Ticket(t, v.agent, nixl.Write, v.region.Desc(0, v.region.Len()))
			r := v.enter(t)
			p := r.ask(v, 1, ticket)
			f := r.fences.at(int(p.slot))
			if f.enter(p.generation+1) || !f.enter(p.generation) {
				t.Fatal("the fence does not know its generation")
			}
			end(r, 1)
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			if err := v.agent.RevokeTicket(ctx, ticket); err == nil {
				t.Fatal("revoked while somebody is inside the fence")
			}
			if f.enter(p.generation) {
				t.Error("a shut fence lets somebody in")
			}
			f.leave(5)
			if name == "nothing" {
				r.put(frame{header: header{kind: kindDone, id: 1}})
			}
			if err := v.agent.RevokeTicket(nixltest.Context(t), ticket); err != nil {
				t.Fatal(err)
			}
			if n := v.agent.Stats().InBytes; n != 5 {
				t.Errorf("%d bytes were counted", n)
			}
		})
	}
}

// fakeTarget lets an initiator in and then sends what it is told.
func fakeTarget(t testing.TB, answer func(c *conn, h header)) (blob connInfo) {
	t.Helper()
	at, err := here()
	if err != nil {
		t.Fatal(err)
	}
	blob = connInfo{place: at, socket: fmt.Sprintf("@dynamo-nixl-test-%d-%d", os.Getpid(), rand.Uint32())}
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: blob.socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			uc, err := ln.AcceptUnix()
			if err != nil {
				return
			}
			serveFake(uc, answer)
		}
	}()
	t.Cleanup(func() { _ = ln.Close(); <-done })
	return blob
}

func serveFake(uc *net.UnixConn, answer func(c *conn, h header)) {
	c := newConn(uc, 5*time.Second, false)
	defer func() { _ = uc.Close() }()
	whole := func(kind) int { return 1 << 20 }
	if _, _, err := handshake.Accept(uc, handshake.Options{Protocol: spoken, Key: nixltest.Key}, time.Now().Add(5*time.Second)); err != nil {
		return
	}
	_ = uc.SetDeadline(time.Time{})
	if _, _, err := c.read(whole); err != nil {
		return
	}
	fs, fd, err := newFences(4)
	if err != nil {
		return
	}
	defer func() { _ = fs.close() }()
	fd, _ = unix.Dup(fd)
	fs.at(0).open(1)
	w := welcome{silence: 5 * time.Second, fences: 4, window: 4}
	var buf []byte
	f := frame{header: header{kind: kindWelcome}, body: w.encode(), fd: fd}
	_ = c.write([]frame{f}, &buf)
	f.closeFD()
	h, _, err := c.read(whole)
	for err == nil && h.kind == kindPing {
		h, _, err = c.read(whole)
	}
	if err != nil {
		return
	}
	answer(c, h)
	_ = uc.CloseWrite()
	for err == nil {
		_, _, err = c.read(whole)
	}
}

const fakeBase = 1 << 40

// fakeRemote is the metadata of a target that is not there.
func fakeRemote(info connInfo) nixl.Remote {
	return nixl.Remote{Identity: nixl.Identity{Name: "fake", Incarnation: "1", HostID: "host"}, Generation: 1, Conn: info.encode()}
}

func TestInitiatorRejects(t *testing.T) {
	write := func(c *conn, fs ...frame) {
		var buf []byte
		_ = c.write(fs, &buf)
		for _, f := range fs {
			f.closeFD()
		}
	}
	memory := func(size int) int {
		m, err := sharedmem.New("test", size)
		if err != nil {
			t.Fatal(err)
		}
		fd, _ := m.SharedFD()
		fd, _ = unix.Dup(fd)
		_ = m.Close()
		return fd
	}
	region := func(addr, n uint64, fd int) frame {
		return frame{header: header{kind: kindRegion}, body: encodeRegion(nixl.Desc{Addr: addr, Len: n}, 0, nil), fd: fd}
	}
	granted := func(h header, p permit) frame {
		return frame{header: header{kind: kindGranted, id: h.id}, body: p.encode()}
	}
	for name, answer := range map[string]func(c *conn, h header){
		"permit without memory": func(c *conn, h header) { write(c, granted(h, permit{0, 1})) },
		"permit nobody wants":   func(c *conn, h header) { h.id += 9; write(c, granted(h, permit{0, 1})) },
		"fence that is not there": func(c *conn, h header) {
			write(c, region(fakeBase, 4096, memory(4096)), granted(h, permit{4, 1}))
		},
		"success without a permit":  func(c *conn, h header) { write(c, resultFrame(h.id, nil)) },
		"region without descriptor": func(c *conn, _ header) { write(c, region(fakeBase, 4096, 0)) },
		"region that is too short":  func(c *conn, _ header) { write(c, region(fakeBase, 1<<20, memory(4096))) },
		"empty region":              func(c *conn, _ header) { write(c, region(fakeBase, 0, memory(4096))) },
		"region that wraps around":  func(c *conn, _ header) { write(c, region(1<<63, 1<<63, memory(4096))) },
		"regions that overlap": func(c *conn, _ header) {
			write(c, region(fakeBase, 4096, memory(4096)), region(fakeBase+9, 99, memory(4096)))
		},
		"descriptors nobody expects": func(c *conn, _ header) {
			_, _, _ = c.uc.WriteMsgUnix([]byte{1}, unix.UnixRights(0, 1, 2, 0, 1, 2), nil)
		},
		"memory that can shrink": func(c *conn, _ header) {
			fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC)
			if err == nil {
				_ = unix.Ftruncate(fd, 4096)
				write(c, region(fakeBase, 4096, fd))
			}
		},
		"a file": func(c *conn, _ header) {
			fd, err := unix.Open("/proc/self/maps", unix.O_RDONLY, 0)
			if err == nil {
				write(c, region(fakeBase, 4096, fd))
			}
		},
		"region with a long note": func(c *conn, _ header) {
			write(c, frame{header: header{kind: kindRegion}, body: encodeRegion(nixl.Desc{Addr: fakeBase, Len: 4096}, 0, make([]byte, maxNote+1)), fd: memory(4096)})
		},
		"frame of an initiator": func(c *conn, _ header) { write(c, frame{header: header{kind: kindNotify}}) },
		"long result": func(c *conn, h header) {
			write(c, frame{header: header{kind: kindResult, id: h.id}, body: make([]byte, 4096)})
		},
		"nothing": func(*conn, header) {},
	} {
		t.Run(name, func(t *testing.T) {
			s, tr := fakeSession(t, fakeTarget(t, answer))
			cl, err := s.begin(frame{header: header{kind: kindAccess}, body: wire.EncodeAccess(nixl.TicketID{1}, []nixl.Desc{{Addr: fakeBase, Len: 64}})},
				[]nixl.Desc{{Addr: fakeBase, Len: 64}}, nil)
			if err != nil {
				t.Fatal(err)
			}
			r, err := s.wait(cl, t.Context().Done())
			if err == nil {
				t.Fatalf("answer %+v, want the session to end", r)
			}
			nixltest.WantStatus(t, err, nixl.ErrRemoteDisconnect)
			s.jobs.Done()
			if err := tr.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// fakeSession connects to a fake target. The caller calls jobs.Done.
func fakeSession(t testing.TB, info connInfo) (*session, *transport) {
	t.Helper()
	var tr *transport
	pool := NewPool(0)
	nixltest.Env{Transports: func() []nixl.Transport {
		tr = pool.Transport(mapped{}, Options{}).(*transport)
		return []nixl.Transport{tr}
	}}.Agent(t, "initiator")
	r := fakeRemote(info)
	tr.Attach(r)
	s, err := tr.session(r)
	if err != nil {
		t.Fatal(err)
	}
	tr.wg.Done() // the test is no user that Close must wait for
	if err := s.enter(t.Context().Done()); err != nil {
		t.Fatal(err)
	}
	return s, tr
}
