package device_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cuda/device"
	"github.com/dynctl/dynctl/internal/cuda/fake"
	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/cudaipc"
	"github.com/dynctl/dynctl/internal/nixl/fenced"
	"github.com/dynctl/dynctl/internal/nixl/nixltest"
)

// process is a pretended process: a driver of its own, whose devices are those of all
// others, and what the data path has of it.
type process struct {
	fake    *fake.Driver
	devices *cudaipc.Devices
}

// processes makes one for each name of an agent; they end with the test.
type processes struct {
	t    testing.TB
	pool *fenced.Pool

	mu     sync.Mutex
	byName map[string]*process
}

func (s *processes) of(name string) *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.byName[name]; p != nil {
		return p
	}
	p := &process{fake: fake.New(fake.Options{})}
	var err error
	if p.devices, err = cudaipc.NewDevices(p.fake); err != nil {
		s.t.Fatal(err)
	}
	s.byName[name] = p
	s.t.Cleanup(func() {
		if err := p.devices.Close(); err != nil {
			s.t.Error(err)
		}
		if err := p.fake.Close(); err != nil { // what was done wrong, and what is left
			s.t.Error(err)
		}
	})
	return p
}

// memory registers the KV arena of a device with an agent.
func (s *processes) memory(t testing.TB, a *nixl.Agent, size int) (*nixl.Region, []byte) {
	t.Helper()
	p := s.of(a.Name())
	d, err := device.Open(p.fake, 0)
	if err != nil {
		t.Fatal(err)
	}
	closeDevice := func() {
		if err := d.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}
	kv, err := d.Arena(device.KV, int64(size))
	if err != nil {
		closeDevice()
		t.Fatal(err)
	}
	all := kv.All()
	arena, err := p.devices.Adopt(d.Index(), all.Address, all.Bytes)
	if err != nil {
		closeDevice()
		t.Fatal(err)
	}
	var r *nixl.Region
	t.Cleanup(closeDevice) // last: peers have closed the memory by then
	t.Cleanup(func() {
		if r != nil && r.Deregister() != nil { // still in use: it ends with the agent
			_ = a.Close()
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := arena.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	if r, err = a.Register(arena, nixl.VRAM, nixl.WithLabel("kv")); err != nil {
		t.Fatal(err)
	}
	return r, p.fake.Bytes(all.Address, size)
}

// TestVRAM has KV arenas written and read by other processes, over the transport of device
// memory: the whole suite of transports, on a driver that finds use after free, missing
// waits and leaks.
func TestVRAM(t *testing.T) {
	nixltest.Run(t, func(t testing.TB) nixltest.Env {
		s := &processes{t: t, pool: fenced.NewPool(0), byName: map[string]*process{}}
		return nixltest.Env{
			Name: cudaipc.Name, Arenas: true, Memory: s.memory,
			Named: func(name string) []nixl.Transport {
				return []nixl.Transport{cudaipc.New(s.pool, s.of(name).devices, nil, fenced.Options{})}
			},
		}
	})
}

// Memory that a peer may have open is not given back to its owner.
func TestAdoptedMemoryIsGivenBack(t *testing.T) {
	s := &processes{t: t, pool: fenced.NewPool(0), byName: map[string]*process{}}
	e := nixltest.Env{Name: cudaipc.Name, Named: func(name string) []nixl.Transport {
		return []nixl.Transport{cudaipc.New(s.pool, s.of(name).devices, nil, fenced.Options{})}
	}}
	e.Memory = s.memory
	const size = 64 << 10
	p := s.of("b")
	d, err := device.Open(p.fake, 0)
	if err != nil {
		t.Fatal(err)
	}
	kv, err := d.Arena(device.KV, size)
	if err != nil {
		t.Fatal(err)
	}
	arena, err := p.devices.Adopt(0, kv.All().Address, size)
	if err != nil {
		t.Fatal(err)
	}
	a, b := e.Agent(t, "a"), e.Agent(t, "b")
	la, ma := e.Region(t, a, size)
	lb, err := b.Register(arena, nixl.VRAM)
	if err != nil {
		t.Fatal(err)
	}
	nixltest.Load(t, a, b)
	nixltest.Fill(ma, 3)
	id := nixltest.Ticket(t, b, nixl.Write, lb.Desc(0, size))
	x := nixltest.New(t, a, nixl.Write, []nixl.Desc{la.Desc(0, size)}, []nixl.Desc{lb.Desc(0, size)}, "b", nixl.TransferOpts{Ticket: id})
	nixltest.WantStatus(t, nixltest.Do(t, x), nixl.Success)
	nixltest.SameAt(t, b, p.fake.Bytes(kv.All().Address, size), ma)
	if err := b.RevokeTicket(nixltest.Context(t), id); err != nil {
		t.Fatal(err)
	}
	soon, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := arena.Close(soon); err == nil {
		t.Error("memory is given back that a peer has open")
	}
	if err := lb.Deregister(); err != nil {
		t.Fatal(err)
	}
	if err := arena.Close(nixltest.Context(t)); err != nil {
		t.Fatal(err)
	}
	// The driver would tell of memory that is freed twice, or under a peer.
	if err := d.Close(nixltest.Context(t)); err != nil {
		t.Error(err)
	}
	for _, bad := range []struct {
		device  int
		address uint64
		size    int64
	}{{1, 1 << 20, size}, {-1, 1 << 20, size}, {0, 0, size}, {0, 1 << 20, 0}, {0, 1 << 20, -1}} {
		if _, err := p.devices.Adopt(bad.device, bad.address, bad.size); err == nil {
			t.Errorf("Adopt(%+v) takes it", bad)
		}
	}
}
