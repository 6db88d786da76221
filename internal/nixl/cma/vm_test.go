//go:build linux

package cma

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/fenced"
	"github.com/dynctl/dynctl/internal/nixl/nixltest"
	"github.com/dynctl/dynctl/internal/nixl/shm"
	"github.com/dynctl/dynctl/internal/nixl/tcp"
)

// TestReach reads a peer's secret, and says why it cannot.
func TestReach(t *testing.T) {
	v := &remoteVM{secret: new([secretBytes]byte)}
	offer, err := v.Offer()
	if err != nil {
		t.Fatal(err)
	}
	ended := exec.Command(os.Args[0], "-test.run=^$")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		change func(b []byte) []byte
		want   string
		status nixl.Status
	}{
		{"the peer", func(b []byte) []byte { return b }, "", nixl.Success},
		{"cut off", func(b []byte) []byte { return b[1:] }, "offer of 27 bytes", nixl.ErrMismatch},
		{"another secret", func(b []byte) []byte { b[12] ^= 1; return b }, "is not the peer", nixl.ErrNotSupported},
		{"an address that is not mapped", func(b []byte) []byte {
			binary.LittleEndian.PutUint64(b[4:], 4096)
			return b
		}, "bad address", nixl.ErrBackend},
		{"a process that has ended", func(b []byte) []byte {
			binary.LittleEndian.PutUint32(b, uint32(ended.Process.Pid))
			return b
		}, "is gone", nixl.ErrNotSupported},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := v.Reach(nixl.Remote{}, c.change(bytes.Clone(offer)))
			if nixl.StatusOf(err) != c.status || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("Reach() = %v, want %q", err, c.want)
			}
		})
	}
}

// TestSkip goes on behind every number of bytes that a call may have moved.
func TestSkip(t *testing.T) {
	lens := []int{1, 5, 3, 8}
	mem := make([]byte, 17)
	for moved := 1; moved <= len(mem); moved++ {
		var here []unix.Iovec
		var there []unix.RemoteIovec
		for off, i := 0, 0; i < len(lens); i++ {
			here = append(here, unix.Iovec{Base: &mem[off]})
			here[i].SetLen(lens[i])
			there = append(there, unix.RemoteIovec{Base: address(mem) + uintptr(off), Len: lens[i]})
			off += lens[i]
		}
		here, there = skip(here, there, uint64(moved))
		left := 0
		for i := range here {
			if int(here[i].Len) != there[i].Len || there[i].Len == 0 {
				t.Fatalf("%d moved: %d bytes here, %d there", moved, here[i].Len, there[i].Len)
			}
			left += there[i].Len
		}
		if left != len(mem)-moved {
			t.Errorf("%d moved: %d left", moved, left)
		}
		if left > 0 && (here[0].Base != &mem[moved] || there[0].Base != address(mem)+uintptr(moved)) {
			t.Errorf("%d moved: goes on elsewhere", moved)
		}
	}
}

// TestCopyFails touches memory that is not there: an error, and what was moved before
// is counted.
func TestCopyFails(t *testing.T) {
	page, err := unix.Mmap(-1, 0, 8192, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(page) }()
	if err := unix.Mprotect(page[4096:], unix.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	gone := false
	mem, err := (&remoteVM{}).Take(fenced.Owner{PID: os.Getpid(), Gone: func() bool { return gone }}, nixl.Desc{}, uint64(address(page)), 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	local := make([]byte, 4096)
	n, err := mem.Copy(nixl.Read, [][]byte{local, local}, []uint64{0, 4096})
	if nixl.StatusOf(err) != nixl.ErrBackend || n != 4096 {
		t.Errorf("Copy() = %d, %v", n, err)
	}
	gone = true
	if n, err := mem.Copy(nixl.Read, [][]byte{local}, []uint64{0}); nixl.StatusOf(err) != nixl.ErrRemoteDisconnect || n != 0 {
		t.Errorf("Copy() from a process that is gone = %d, %v", n, err)
	}
	if _, err := (&remoteVM{}).Take(fenced.Owner{}, nixl.Desc{}, 1<<63, 0, nil); nixl.StatusOf(err) != nixl.ErrMismatch {
		t.Errorf("Take() of an absurd address: %v", err)
	}
}

// TestChoice uses cma for foreign memory, and only for that.
func TestChoice(t *testing.T) {
	pool := fenced.NewPool(0)
	e := nixltest.Env{Arenas: true, Transports: func() []nixl.Transport {
		return []nixl.Transport{shm.New(pool, fenced.Options{}), New(pool, fenced.Options{}), tcp.New(tcp.Options{})}
	}}
	heap := nixltest.Env{Transports: e.Transports}
	for _, c := range []struct {
		peer nixltest.Env
		want string
	}{{e, "shm"}, {heap, "cma"}} {
		t.Run(c.want, func(t *testing.T) {
			a, b := e.Agent(t, "a"), c.peer.Agent(t, "b")
			la, ma := e.Region(t, a, 64<<10)
			lb, mb := c.peer.Region(t, b, 64<<10)
			nixltest.Load(t, a, b)
			if p := a.Peers()[0]; p.Transport != c.want {
				t.Errorf("chosen %s: %s", p.Transport, p.Reason)
			}
			nixltest.Fill(ma, rand.Uint64())
			x := nixltest.New(t, a, nixl.Write, []nixl.Desc{la.Desc(0, la.Len())}, []nixl.Desc{lb.Desc(0, lb.Len())}, "b",
				nixl.TransferOpts{Ticket: nixltest.Ticket(t, b, nixl.Write, lb.Desc(0, lb.Len()))})
			nixltest.WantStatus(t, nixltest.Do(t, x), nixl.Success)
			nixltest.SameAt(t, b, mb, ma)
		})
	}
}
