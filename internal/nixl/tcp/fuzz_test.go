package tcp

import (
	"bytes"
	"net"
	"sync"
	"testing"

	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/nixltest"
	"github.com/dynctl/dynctl/internal/nixl/wire"
)

// FuzzTarget sends arbitrary bytes after a proper hello. The target must neither
// crash nor hang nor write outside of the one ticket.
func FuzzTarget(f *testing.F) {
	const size = 8192
	v := newVictim(f, size, Options{})
	d := v.region.Desc(0, size)
	low := v.region.Desc(1024, 2048)
	seed := func(fs ...frame) {
		var b []byte
		for _, fr := range fs {
			b = fr.append(b)
		}
		f.Add(b)
	}
	// The fuzzer knows no ticket: the zero one stands for it and is filled in below.
	write := frame{header{kind: kindWrite, id: 1}, access{total: 2048, descs: []nixl.Desc{low}}.append(nil)}
	seed(write, frame{header{kind: kindData, id: 1}, bytes.Repeat([]byte{7}, 2048)}, frame{header: header{kind: kindCommit, id: 1}})
	seed(write, frame{header{kind: kindData, id: 1}, make([]byte, 100)}, frame{header: header{kind: kindAbort, id: 1}})
	seed(frame{header{kind: kindRead, id: 2}, access{total: size, descs: []nixl.Desc{d}}.append(nil)}, frame{header: header{kind: kindAbort, id: 2}})
	seed(frame{header{kind: kindNotify, id: 3}, []byte("hi")}, frame{header: header{kind: kindPing}}, frame{header: header{kind: kindProbe, id: 4}})
	seed(frame{header{kind: kindProbeClose}, make([]byte, 16)}, frame{header{kind: kindBye}, []byte("bye")})
	f.Fuzz(func(t *testing.T, stream []byte) {
		ticket := nixltest.Ticket(t, v.agent, nixl.Write, low)
		r := v.connect(t)
		if len(stream) >= headerBytes+16 { // let the first frame have the ticket
			stream = bytes.Clone(stream)
			copy(stream[headerBytes:], ticket[:])
		}
		var wg sync.WaitGroup
		wg.Go(func() { // beside the answers, which may be many
			_, _ = r.nc.Write(stream)
			_ = r.nc.(*net.TCPConn).CloseWrite()
		})
		r.closed()
		wg.Wait()
		_ = r.nc.Close()
		if err := v.agent.RevokeTicket(nixltest.Context(t), ticket); err != nil {
			t.Fatal(err)
		}
		for _, outside := range [][]byte{v.mem[:1024], v.mem[1024+2048:]} {
			for _, b := range outside {
				if b != 0 {
					t.Fatal("memory outside of the ticket was written")
				}
			}
		}
		nixltest.Drain(t, v.agent)
	})
}

// FuzzCodecs decodes arbitrary bytes; what decodes must encode to the same.
func FuzzCodecs(f *testing.F) {
	f.Add(hello{ends: wire.Ends{From: nixl.Identity{Name: "a", Incarnation: "1"}, To: nixl.Identity{Name: "b", Incarnation: "2"}}}.encode())
	f.Add(welcome{1e9, 1, 1, 1, 1, 1, 1, true}.encode())
	f.Add(access{total: 5, descs: []nixl.Desc{{Addr: 1, Len: 2}, {Addr: 9, Len: 3, DevID: 1}}}.append(nil))
	f.Add(connInfo{addr: "127.0.0.1:1"}.encode())
	f.Add(connInfo{tls: true, addr: "127.0.0.1:1"}.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if h, err := parseHello(b); err == nil && !bytes.Equal(h.encode(), b) {
			t.Errorf("hello: %x is not %x", h.encode(), b)
		}
		if w, err := parseWelcome(b); err == nil && !bytes.Equal(w.encode(), b) {
			t.Errorf("welcome: %x is not %x", w.encode(), b)
		}
		if a, err := parseAccess(b); err == nil && !bytes.Equal(a.append(nil), b) {
			t.Errorf("access: %x is not %x", a.append(nil), b)
		}
		if c, err := parseConnInfo(b); err == nil && !bytes.Equal(c.encode(), b) {
			t.Errorf("connection data: %x is not %x", c.encode(), b)
		}
	})
}

// FuzzInitiator lets a hand-made target answer with arbitrary bytes. The initiator
// must end its transfers and keep to the memory it has given.
func FuzzInitiator(f *testing.F) {
	f.Add(frame{header{kind: kindData, id: 1}, make([]byte, 64)}.append(nil))
	f.Add(frame{header{kind: kindResult, id: 1}, nil}.append(nil))
	f.Add(frame{header{kind: kindResult, id: 1, status: -6}, []byte("no")}.append(nil))
	f.Add(frame{header{kind: kindData, id: 1, arg: 3}, make([]byte, 64)}.append(frame{header{kind: kindBye}, []byte("x")}.append(nil)))
	env := nixltest.Env{Name: Name, Transports: func() []nixl.Transport { return []nixl.Transport{New(Options{})} }}
	b := env.Agent(f, "b") // only its metadata is used
	rb, _ := nixltest.Region(f, b, 64)
	fake := newFake(f)
	f.Fuzz(func(t *testing.T, answer []byte) {
		fake.answer(answer)
		a, err := nixl.NewAgent(nixl.Config{Name: "a", Key: nixltest.Key, Transports: []nixl.Transport{New(Options{Conns: 1, dial: fake.dial})}})
		if err != nil {
			t.Skip(err) // out of ports: each run takes some
		}
		mem := make(nixltest.Heap, 4096)
		r, err := a.Register(mem, nixl.DRAM)
		if err != nil {
			t.Fatal(err)
		}
		nixltest.Load(t, a, b)
		x := nixltest.New(t, a, nixl.Read, []nixl.Desc{r.Desc(1024, 64)}, []nixl.Desc{rb.Desc(0, 64)}, "b", nixl.TransferOpts{})
		_ = nixltest.Do(t, x)
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
