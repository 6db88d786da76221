package device_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cuda/device"
	"github.com/dynctl/dynctl/internal/lab/cuda/fake"
	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/cudaipc"
	"github.com/dynctl/dynctl/internal/nixl/fenced"
	"github.com/dynctl/dynctl/internal/nixl/local"
	"github.com/dynctl/dynctl/internal/nixl/nixltest"
	"github.com/dynctl/dynctl/internal/patience"
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

	one bool // all agents are in one process

	mu     sync.Mutex
	byName map[string]*process
}

func (s *processes) of(name string) *process {
	if s.one {
		name = ""
	}
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
		ctx, cancel := context.WithTimeout(context.Background(), long)
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
	if patience.RaceDetector {
		t.Skip("what are two processes is one here: their messages order accesses, which the race detector does not see")
	}
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

// TestVRAMOfOneProcess has the KV arenas of agents of one process, which share a driver.
func TestVRAMOfOneProcess(t *testing.T) {
	nixltest.Run(t, func(t testing.TB) nixltest.Env {
		s := &processes{t: t, byName: map[string]*process{}, one: true}
		reg := local.NewRegistry(0)
		return nixltest.Env{Name: local.Name, Memory: s.memory, Transports: func() []nixl.Transport { return []nixl.Transport{reg.Transport()} }}
	})
}

// counting counts copies between device and host.
type counting struct {
	*fake.Driver
	host, device atomic.Int64
}

func (c *counting) MemcpyHtoDAsync(device int, dst uint64, src []byte, stream uint64) error {
	c.host.Add(1)
	return c.Driver.MemcpyHtoDAsync(device, dst, src, stream)
}

func (c *counting) MemcpyDtoHAsync(device int, dst []byte, src uint64, stream uint64) error {
	c.host.Add(1)
	return c.Driver.MemcpyDtoHAsync(device, dst, src, stream)
}

func (c *counting) MemcpyDtoDAsync(device int, dst, src uint64, n int64, stream uint64) error {
	c.device.Add(1)
	return c.Driver.MemcpyDtoDAsync(device, dst, src, n, stream)
}

// Agents of one process hand memory over in one copy of their device, over the transport
// between processes, too, which does not reach its own.
func TestOneCopyWithinAProcess(t *testing.T) {
	const size = 1 << 20
	c := &counting{Driver: fake.New(fake.Options{})}
	devices, err := cudaipc.NewDevices(c)
	if err != nil {
		t.Fatal(err)
	}
	reg, pool := local.NewRegistry(0), fenced.NewPool(1)
	e := nixltest.Env{Transports: func() []nixl.Transport {
		return []nixl.Transport{reg.Transport(), cudaipc.New(pool, devices, nil, fenced.Options{})}
	}}
	a, b := e.Agent(t, "a"), e.Agent(t, "b")
	register := func(agent *nixl.Agent) (*nixl.Region, *cudaipc.Arena) {
		arena, err := devices.NewArena(0, size)
		if err != nil {
			t.Fatal(err)
		}
		r, err := agent.Register(arena, nixl.VRAM, nixl.WithLabel("kv"))
		if err != nil {
			t.Fatal(err)
		}
		return r, arena
	}
	la, ma := register(a)
	lb, mb := register(b)
	nixltest.Load(t, a, b)
	if p := a.Peers()[0]; p.Transport != local.Name {
		t.Fatalf("chosen %s: %s", p.Transport, p.Reason)
	}
	for op, remote := range map[nixl.Op]*cudaipc.Arena{nixl.Write: mb, nixl.Read: ma} {
		source := map[nixl.Op]*cudaipc.Arena{nixl.Write: ma, nixl.Read: mb}[op]
		nixltest.Fill(c.Bytes(source.Address(), size), uint64(op)+1)
		before := c.device.Load()
		x := nixltest.New(t, a, op, []nixl.Desc{la.Desc(0, size)}, []nixl.Desc{lb.Desc(0, size)}, "b",
			nixl.TransferOpts{Ticket: nixltest.Ticket(t, b, op, lb.Desc(0, size))})
		nixltest.WantStatus(t, nixltest.Do(t, x), nixl.Success)
		nixltest.Same(t, c.Bytes(remote.Address(), size), c.Bytes(source.Address(), size))
		if n := c.device.Load() - before; n != 1 || c.host.Load() != 0 {
			t.Errorf("%s: %d copies by the device, %d through the host", op, n, c.host.Load())
		}
	}
	if err := ma.CopyFrom(0, nixltest.NewDevice(0, size), 0, 1); !errors.Is(err, nixl.ErrNotSupported) {
		t.Errorf("CopyFrom() of other memory = %v", err)
	}
	for _, bad := range [][3]uint64{{1, 0, size}, {0, 1, size}, {0, 0, size + 1}, {1 << 63, 0, 1}, {0, 1 << 63, 1}, {0, 0, 1 << 63}} {
		if err := ma.CopyFrom(bad[0], mb, bad[1], bad[2]); !errors.Is(err, nixl.ErrInvalidParam) {
			t.Errorf("CopyFrom(%v) = %v", bad, err)
		}
	}
	if err := errors.Join(a.Close(), b.Close(), ma.Close(t.Context()), mb.Close(t.Context()), devices.Close(), c.Close()); err != nil {
		t.Error(err)
	}
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
