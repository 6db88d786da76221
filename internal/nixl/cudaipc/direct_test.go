//go:build linux

package cudaipc_test

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/cudaipc"
	"github.com/dynctl/dynctl/internal/nixl/cudaipc/fakedevice"
	"github.com/dynctl/dynctl/internal/nixl/fenced"
	"github.com/dynctl/dynctl/internal/nixl/nixltest"
	"github.com/dynctl/dynctl/internal/nixl/shm"
)

// TestDirect moves memory in all combinations of device and host, each with exactly
// one copy: nothing is staged.
func TestDirect(t *testing.T) {
	const size = 1 << 20
	s := newPretended(t)
	vram := nixltest.Env{Named: s.transports, Memory: s.memory}
	dram := nixltest.Env{Named: s.transports, Arenas: true}
	for _, c := range []struct {
		name          string
		local, remote nixltest.Env
		op            nixl.Op
		want          fakedevice.Copies // by the initiator
	}{
		{"write device to device", vram, vram, nixl.Write, fakedevice.Copies{DtoD: 1}},
		{"read device from device", vram, vram, nixl.Read, fakedevice.Copies{DtoD: 1}},
		{"write host to device", dram, vram, nixl.Write, fakedevice.Copies{HtoD: 1}},
		{"read host from device", dram, vram, nixl.Read, fakedevice.Copies{DtoH: 1}},
		{"write device to host", vram, dram, nixl.Write, fakedevice.Copies{DtoH: 1}},
		{"read device from host", vram, dram, nixl.Read, fakedevice.Copies{HtoD: 1}},
		{"write host to host", dram, dram, nixl.Write, fakedevice.Copies{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := c.local.Agent(t, "a"), c.remote.Agent(t, "b")
			la, ma := c.local.Region(t, a, size)
			lb, mb := c.remote.Region(t, b, size)
			nixltest.Load(t, a, b)
			nixltest.Fill(ma, 1)
			nixltest.Fill(mb, 2)
			want := bytes.Clone(ma)
			if c.op == nixl.Read {
				want = bytes.Clone(mb)
			}
			x := nixltest.New(t, a, c.op, []nixl.Desc{la.Desc(0, size)}, []nixl.Desc{lb.Desc(0, size)}, "b",
				nixl.TransferOpts{Ticket: nixltest.Ticket(t, b, c.op, lb.Desc(0, size))})
			nixltest.WantStatus(t, nixltest.Do(t, x), nixl.Success)
			nixltest.Same(t, ma, want)
			nixltest.SameAt(t, b, mb, want)
			if got := s.process("a").driver.Copies(); got != c.want {
				t.Errorf("the initiator's device copied %+v, want %+v", got, c.want)
			}
			if got := s.process("b").driver.Copies(); got != (fakedevice.Copies{}) {
				t.Errorf("the target's device copied %+v", got)
			}
		})
	}
}

// TestBroken fails copies: the transfer fails, and the next ones work.
func TestBroken(t *testing.T) {
	const size = 64 << 10
	s := newPretended(t)
	e := nixltest.Env{Named: s.transports, Memory: s.memory}
	a, b := e.Agent(t, "a"), e.Agent(t, "b")
	la, ma := e.Region(t, a, size)
	lb, mb := e.Region(t, b, size)
	nixltest.Load(t, a, b)
	x := nixltest.New(t, a, nixl.Write, []nixl.Desc{la.Desc(0, size)}, []nixl.Desc{lb.Desc(0, size)}, "b",
		nixl.TransferOpts{Ticket: nixltest.Ticket(t, b, nixl.Write, lb.Desc(0, size))})
	s.process("a").driver.Break(true)
	nixltest.WantStatus(t, nixltest.Do(t, x), nixl.ErrBackend)
	s.process("a").driver.Break(false)
	nixltest.Fill(ma, 3)
	nixltest.WantStatus(t, nixltest.Do(t, x), nixl.Success)
	nixltest.SameAt(t, b, mb, ma)
}

// TestFreeWaits frees memory that a peer has open: it waits until the peer, told by the
// deregistration, has closed it. The fake device would note a free before that.
func TestFreeWaits(t *testing.T) {
	const size = 64 << 10
	s := newPretended(t)
	e := nixltest.Env{Named: s.transports, Memory: s.memory}
	a, b := e.Agent(t, "a"), e.Agent(t, "b")
	la, _ := e.Region(t, a, size)
	for range 20 {
		arena, err := s.process("b").devices.NewArena(0, size)
		if err != nil {
			t.Fatal(err)
		}
		lb, err := b.Register(arena, nixl.VRAM)
		if err != nil {
			t.Fatal(err)
		}
		nixltest.Load(t, a, b)
		id := nixltest.Ticket(t, b, nixl.Write, lb.Desc(0, size))
		x := nixltest.New(t, a, nixl.Write, []nixl.Desc{la.Desc(0, size)}, []nixl.Desc{lb.Desc(0, size)}, "b", nixl.TransferOpts{Ticket: id})
		nixltest.WantStatus(t, nixltest.Do(t, x), nixl.Success)
		if err := b.RevokeTicket(nixltest.Context(t), id); err != nil {
			t.Fatal(err)
		}
		soon, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		if err := arena.Close(soon); err == nil {
			t.Error("memory was freed that is registered and that a peer has open")
		}
		cancel()
		if err := lb.Deregister(); err != nil {
			t.Fatal(err)
		}
		if err := arena.Close(nixltest.Context(t)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestChoice says why devices of a peer are not reached, and what is used instead.
func TestChoice(t *testing.T) {
	for _, c := range []struct {
		name       string
		here       []byte // numbers of visible devices; none without a driver
		there      []byte
		device     int // of the peer's memory, at the peer
		transport  string
		wantReason string
	}{
		{"the same device", []byte{7}, []byte{7}, 0, "cudaipc", "device memory by CUDA IPC"},
		{"the same device, other indices", []byte{7, 8}, []byte{8, 7}, 1, "cudaipc", "device memory by CUDA IPC"},
		{"another device that is visible", []byte{7, 8}, []byte{8}, 0, "cudaipc", "device memory by CUDA IPC"},
		{"a device that is not visible", []byte{7}, []byte{8}, 0, "shm", "is not visible to this process (CUDA_VISIBLE_DEVICES)"},
		{"none here", nil, []byte{7}, 0, "shm", "cudaipc: this process cannot share memory"},
		{"none there", []byte{7}, nil, 0, "shm", "cudaipc: peer does not offer it"},
	} {
		t.Run(c.name, func(t *testing.T) {
			pool := fenced.NewPool(1)
			agent := func(name string, numbers []byte) (*nixl.Agent, *process) {
				var p *process
				e := nixltest.Env{Transports: func() []nixl.Transport {
					if numbers == nil {
						return []nixl.Transport{cudaipc.New(pool, nil, nixl.ErrNotSupported, fenced.Options{}), shm.New(pool, fenced.Options{})}
					}
					p = newProcess(t, numbers...)
					t.Cleanup(func() { p.close(t) })
					return []nixl.Transport{cudaipc.New(pool, p.devices, nil, fenced.Options{}), shm.New(pool, fenced.Options{})}
				}}
				return e.Agent(t, name), p
			}
			a, here := agent("a", c.here)
			b, there := agent("b", c.there)
			const size = 1 << 20
			register := func(ag *nixl.Agent, p *process, device int) (*nixl.Region, nixl.DeviceMemory) {
				t.Helper()
				if p == nil {
					d := nixltest.NewDevice(device, size)
					return nixltest.RegisterDevice(t, ag, d), d
				}
				arena, err := p.devices.NewArena(device, size)
				if err != nil {
					t.Fatal(err)
				}
				r, err := ag.Register(arena, nixl.VRAM, nixl.WithLabel("vram"))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() {
					_ = ag.Close()
					if err := arena.Close(context.Background()); err != nil {
						t.Error(err)
					}
				})
				return r, arena
			}
			la, ma := register(a, here, 0)
			lb, mb := register(b, there, c.device)
			nixltest.Load(t, a, b)
			if p := a.Peers()[0]; p.Transport != c.transport || !strings.Contains(p.Reason, c.wantReason) {
				t.Errorf("chosen %s: %s", p.Transport, p.Reason)
			}
			want, got := make([]byte, size), make([]byte, size)
			nixltest.Fill(want, 5)
			if _, err := ma.WriteAt(want, 0); err != nil {
				t.Fatal(err)
			}
			x := nixltest.New(t, a, nixl.Write, []nixl.Desc{la.Desc(0, size)}, []nixl.Desc{lb.Desc(0, size)}, "b",
				nixl.TransferOpts{Ticket: nixltest.Ticket(t, b, nixl.Write, lb.Desc(0, size))})
			nixltest.WantStatus(t, nixltest.Do(t, x), nixl.Success)
			if _, err := mb.ReadAt(got, 0); err != nil {
				t.Fatal(err)
			}
			nixltest.Same(t, got, want)
		})
	}
}

// TestSameProcess does not open handles in the process that made them.
func TestSameProcess(t *testing.T) {
	p := newProcess(t, 7)
	t.Cleanup(func() { p.close(t) })
	pool := fenced.NewPool(1)
	e := nixltest.Env{Named: func(string) []nixl.Transport {
		return []nixl.Transport{cudaipc.New(pool, p.devices, nil, fenced.Options{}), shm.New(pool, fenced.Options{})}
	}}
	a, b := e.Agent(t, "a"), e.Agent(t, "b")
	nixltest.Load(t, a, b)
	if p := a.Peers()[0]; p.Transport != "shm" || !strings.Contains(p.Reason, "peer is in this process") {
		t.Errorf("chosen %s: %s", p.Transport, p.Reason)
	}
}
