package nixl_test

import (
	"testing"

	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/nixltest"
)

// endless claims more bytes than there are addresses.
type endless struct{ nixl.DeviceMemory }

func (endless) Size() int64 { return 1<<63 - 1 }

func TestRegisterRefuses(t *testing.T) {
	a := both().Agent(t, "a")
	dev := nixltest.NewDevice(0, 4096)
	for _, c := range []struct {
		name string
		mem  nixl.Memory
		typ  nixl.MemType
		want nixl.Status
	}{
		{"block device", nixltest.Heap(make([]byte, 9)), 2, nixl.ErrNotSupported},
		{"unknown kind", nixltest.Heap(make([]byte, 9)), 9, nixl.ErrNotSupported},
		{"nothing", nil, nixl.DRAM, nixl.ErrNotSupported},
		{"device as host memory", dev, nixl.DRAM, nixl.ErrNotSupported},
		{"host memory as a device's", nixltest.Heap(make([]byte, 9)), nixl.VRAM, nixl.ErrNotSupported},
		{"empty device", nixltest.NewDevice(0, 0), nixl.VRAM, nixl.ErrInvalidParam},
		{"negative device", nixltest.NewDevice(-1, 9), nixl.VRAM, nixl.ErrInvalidParam},
		{"more than there is", endless{dev}, nixl.VRAM, nixl.ErrBackend},
	} {
		if _, err := a.Register(c.mem, c.typ); nixl.StatusOf(err) != c.want {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestRegistrationLists(t *testing.T) {
	a := both().Agent(t, "a", func(c *nixl.Config) { c.Limits.Regions = 8 })
	b := both().Agent(t, "b")
	heap := func() nixl.Memory { return nixltest.Heap(make([]byte, 64)) }
	arena, err := nixl.NewArena(4096)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.RegisterAll([]nixl.Registration{{Memory: arena}, {Memory: heap(), Type: 3}}); nixl.StatusOf(err) != nixl.ErrNotSupported {
		t.Errorf("list with an object: %v", err)
	}
	long := make([]byte, 300)
	if _, err := a.RegisterAll([]nixl.Registration{{Memory: arena}, {Memory: heap(), Label: string(long)}}); nixl.StatusOf(err) != nixl.ErrInvalidParam {
		t.Errorf("list with a long label: %v", err)
	}
	if _, err := a.RegisterAll(make([]nixl.Registration, 9)); err == nil {
		t.Error("nine regions of eight are registered")
	}
	if n := a.Stats().Regions; n != 0 {
		t.Fatalf("%d regions of refused lists are registered", n)
	}
	if err := arena.Close(); err != nil {
		t.Errorf("arena of a refused list: %v", err)
	}

	rs, err := a.RegisterAll([]nixl.Registration{{Memory: heap(), Label: "x"}, {Memory: heap(), Label: "y"}, {Memory: heap(), Label: "z"}})
	if err != nil {
		t.Fatal(err)
	}
	nixltest.Load(t, b, a)
	seen, err := b.RemoteRegions("a")
	if err != nil || len(seen) != 3 || seen[0].Label != "x" || seen[2].Label != "z" {
		t.Errorf("regions as a peer sees them: %+v, %v", seen, err)
	}
	id := nixltest.Ticket(t, a, nixl.Read, rs[1].Desc(0, 8))
	if err := rs[1].Deregister(); nixl.StatusOf(err) != nixl.ErrNotAllowed {
		t.Errorf("region in use: %v", err)
	}
	if n := a.Stats().Regions; n != 3 {
		t.Fatalf("%d regions are left after one in use was refused", n)
	}
	if err := a.RevokeTicket(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	for _, r := range append(rs, rs[1]) { // one is gone then
		if err := r.Deregister(); err != nil {
			t.Errorf("deregister: %v", err)
		}
	}
	if s := a.Stats(); s.Regions != 0 || s.RegisteredBytes != 0 {
		t.Errorf("left: %d regions, %d bytes", s.Regions, s.RegisteredBytes)
	}
}
