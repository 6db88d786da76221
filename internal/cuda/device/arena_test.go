package device_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/cuda/device"
	"github.com/dynctl/dynctl/internal/cuda/driver"
)

func TestArenas(t *testing.T) {
	r := newRig(t)
	a, b := r.take(1), r.take(300)
	if a.Bytes != 1 || b.Bytes != 300 || b.Address != a.Address+256 || b.Address%256 != 0 {
		t.Errorf("regions %+v and %+v", a, b)
	}
	rest := r.take(1<<16 - 256 - 512)
	if rest.Address+uint64(rest.Bytes) != r.arena.All().Address+uint64(r.arena.All().Bytes) {
		t.Errorf("the last region %+v is not the rest of %+v", rest, r.arena.All())
	}
	if _, err := r.arena.Take(1); !errors.Is(err, driver.ErrOutOfMemory) || !strings.Contains(err.Error(), "the workspace arena has 0 of 65536 bytes left") {
		t.Errorf("Take() of a full arena = %v", err)
	}
	if _, err := r.arena.Take(0); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("Take(0) = %v", err)
	}
	if got := b.Slice(100, 200); got != (device.Region{Address: b.Address + 100, Bytes: 200}) {
		t.Errorf("Slice() = %+v", got)
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("a slice over the end is not refused")
			}
		}()
		b.Slice(101, 200)
	}()
	want := []device.Usage{{Purpose: device.Workspace, Bytes: 1 << 16, Used: 1 << 16}, {Purpose: device.IO, Bytes: 1 << 16, Used: 4096, Pinned: true}}
	if got := r.Usage(); !slices.Equal(got, want) {
		t.Errorf("Usage() = %+v", got)
	}
	r.ok(r.close())
}

func TestPinnedArena(t *testing.T) {
	r := newRig(t)
	p, err := r.Pinned(device.IO, 1000)
	r.ok(err)
	first, err := p.Take(10)
	r.ok(err)
	second, err := p.Take(744)
	r.ok(err)
	if len(first) != 10 || cap(first) != 10 || len(second) != 744 {
		t.Errorf("%d of %d bytes, and %d", len(first), cap(first), len(second))
	}
	for n, want := range map[int64]error{1: driver.ErrOutOfMemory, 0: driver.ErrInvalid, -1: driver.ErrInvalid} {
		if _, err := p.Take(n); !errors.Is(err, want) {
			t.Errorf("Take(%d) = %v", n, err)
		}
	}
	r.ok(r.close())
}

// Nothing is allocated after the start; what was is used on.
func TestSeal(t *testing.T) {
	r := newRig(t)
	r.Seal()
	_, errArena := r.Arena(device.Weights, 64)
	_, errPinned := r.Pinned(device.IO, 64)
	for _, err := range []error{errArena, errPinned} {
		if !errors.Is(err, device.ErrSealed) {
			t.Errorf("after Seal: %v", err)
		}
	}
	r.take(64)
	r.ok(r.close())
}

func TestOutOfMemory(t *testing.T) {
	r := newRig(t)
	_, err := r.Arena(device.Weights, 2<<30)
	if !errors.Is(err, driver.ErrOutOfMemory) || !strings.Contains(err.Error(), "allocate 2.0 GiB for weights") || r.Err() != nil {
		t.Errorf("Arena() of more than there is = %v", err)
	}
	if _, err := r.Pinned(device.IO, -1); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("Pinned(-1) = %v", err)
	}
	r.ok(r.close())
}
