package ucp

import (
	"bytes"
	"runtime"
	"slices"
	"testing"
	"time"
	"unsafe"

	"go.uber.org/goleak"

	"github.com/dynctl/dynctl/internal/sharedmem"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pair is two workers of one thread, connected to each other.
type pair struct {
	t        *testing.T
	lib      *Library
	ctx      [2]*Context
	w        [2]*Worker
	there    *Endpoint
	back     *Endpoint
	received [2][]int // sizes of messages, by the first byte of their headers
}

func newPair(t *testing.T) *pair {
	t.Helper()
	lib, err := Load()
	if err != nil {
		t.Skip(err)
	}
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	p := &pair{t: t, lib: lib}
	for i := range p.w {
		if p.ctx[i], err = lib.NewContext(Setting{"TLS", "tcp"}, Setting{"NET_DEVICES", "lo"}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.ctx[i].Close)
		if p.w[i], err = p.ctx[i].NewWorker(func(h, d []byte) {
			p.received[i] = append(p.received[i], int(h[0])<<32|len(d))
		}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if p.w[i].h != 0 {
				p.w[i].Close()
			}
		})
	}
	if p.there, err = p.w[0].Connect(p.w[1].Address()); err != nil {
		t.Fatal(err)
	}
	if p.back, err = p.w[1].Connect(p.w[0].Address()); err != nil {
		t.Fatal(err)
	}
	return p
}

// until progresses both workers until the condition holds.
func (p *pair) until(what string, cond func() bool) {
	p.t.Helper()
	for end := time.Now().Add(time.Minute); !cond(); {
		if time.Now().After(end) {
			p.t.Fatalf("never: %s", what)
		}
		for _, w := range p.w {
			if w.h == 0 {
				continue
			}
			w.Progress()
			if !w.Sound() {
				p.t.Fatal("a message came by rendezvous")
			}
		}
	}
}

// do waits for an operation.
func (p *pair) do(r Request, err error) error {
	p.t.Helper()
	if err != nil {
		return err
	}
	p.until("request ends", func() bool {
		var done bool
		done, err = p.lib.Test(r)
		return done
	})
	return err
}

func arena(t *testing.T, size int) []byte {
	t.Helper()
	m, err := sharedmem.New("test", size)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	return m.Bytes()
}

func TestMessagesAndMemory(t *testing.T) {
	p := newPair(t)
	if p.lib.Version() == "" || p.ctx[0].MemoryTypes()&1 == 0 {
		t.Errorf("version %q, memory types %#x", p.lib.Version(), p.ctx[0].MemoryTypes())
	}
	const size = 3 << 20
	local, remote := arena(t, size), arena(t, size)
	for i := range local {
		local[i] = byte(i * 7)
	}
	ml, err := p.ctx[0].Map(local)
	if err != nil {
		t.Fatal(err)
	}
	defer ml.Close()
	mr, err := p.ctx[1].Map(remote)
	if err != nil {
		t.Fatal(err)
	}
	defer mr.Close()

	sizes := []int{0, 1, 100, 70_000, 1 << 20}
	header := arena(t, 16*len(sizes)) // what is sent must not be on the Go heap
	for i, n := range sizes {
		h := header[16*i : 16*i+16]
		h[0] = byte(i)
		if err := p.do(p.there.Send(h, local[:n])); err != nil {
			t.Fatal(err)
		}
	}
	p.until("messages arrive", func() bool { return len(p.received[1]) == len(sizes) })
	for i, n := range sizes {
		if !slices.Contains(p.received[1], i<<32|n) {
			t.Errorf("message %d of %d bytes did not arrive", i, n)
		}
	}

	key, err := p.there.Unpack(mr.Key())
	if err != nil {
		t.Fatal(err)
	}
	defer key.Close()
	addr := uint64(uintptr(unsafe.Pointer(&remote[0])))
	if err := p.do(p.there.Put(local, ml, addr, key)); err != nil {
		t.Fatal(err)
	}
	if err := p.do(p.there.Flush()); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(local, remote) {
		t.Fatal("memory differs after a flush")
	}
	clear(local)
	if err := p.do(p.there.Get(local[:size/2], ml, addr+size/2, key)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(local[:size/2], remote[size/2:]) {
		t.Fatal("what was read differs")
	}
}

// A worker that is gone is noticed by its peer, whether it says goodbye or not.
func TestPeerWorkerCloses(t *testing.T) {
	p := newPair(t)
	msg := arena(t, 16)
	if err := p.do(p.there.Send(msg, nil)); err != nil {
		t.Fatal(err)
	}
	p.until("message arrives", func() bool { return len(p.received[1]) == 1 })
	if p.there.Failed() != nil {
		t.Fatal(p.there.Failed())
	}
	p.w[1].Close()
	p.until("failure is noticed", func() bool {
		if p.there.Failed() == nil {
			_ = p.do(p.there.Send(msg, nil))
		}
		return p.there.Failed() != nil
	})
	t.Log(p.there.Failed())
	if err := p.do(p.there.Close(true)); err != nil && err != Canceled {
		t.Logf("close: %v", err)
	}
}

func TestArm(t *testing.T) {
	p := newPair(t)
	p.until("both are armed", func() bool {
		for _, w := range p.w {
			if ok, err := w.Arm(); err != nil {
				t.Fatal(err)
			} else if !ok {
				return false
			}
		}
		return true
	})
	if p.w[0].EventFD() <= 0 || p.w[0].EventFD() == p.w[1].EventFD() {
		t.Errorf("event descriptors %d, %d", p.w[0].EventFD(), p.w[1].EventFD())
	}
}

func TestBadInput(t *testing.T) {
	p := newPair(t)
	if _, err := p.w[0].Connect(nil); err == nil {
		t.Error("an endpoint without address")
	}
	if _, err := p.there.Unpack(nil); err == nil {
		t.Error("a key of nothing")
	}
	if _, err := p.lib.NewContext(Setting{"NO_SUCH_OPTION", "1"}); err != nil {
		t.Logf("unknown setting: %v", err) // refused, or ignored by UCX
	}
	if _, err := p.lib.NewContext(Setting{"TLS", "nosuchtransport"}); err == nil {
		t.Error("a context without transports")
	}
}

// A nil pointer is still a panic after UCX was loaded, not the end of the process.
func TestPanicsAreRecovered(t *testing.T) {
	if _, err := Load(); err != nil {
		t.Skip(err)
	}
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	missing := func() *pair { return nil } // the checks see through a plain nil
	missing().received[0] = nil
}

func BenchmarkWorker(b *testing.B) {
	lib, err := Load()
	if err != nil {
		b.Skip(err)
	}
	c, err := lib.NewContext(Setting{"TLS", "tcp"}, Setting{"NET_DEVICES", "lo"})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	for b.Loop() {
		w, err := c.NewWorker(func(_, _ []byte) {})
		if err != nil {
			b.Fatal(err)
		}
		w.Close()
	}
}
