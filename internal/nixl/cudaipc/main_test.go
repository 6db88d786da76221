//go:build linux

package cudaipc_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/cudaipc"
	"github.com/dynctl/dynctl/internal/nixl/cudaipc/fakedevice"
	"github.com/dynctl/dynctl/internal/nixl/fenced"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var _ cudaipc.Driver = (*fakedevice.Driver)(nil)

// process is a pretended process with devices of its own.
type process struct {
	driver  *fakedevice.Driver
	devices *cudaipc.Devices
}

func newProcess(t testing.TB, numbers ...byte) *process {
	t.Helper()
	p := &process{driver: fakedevice.New(numbers...)}
	var err error
	if p.devices, err = cudaipc.NewDevices(p.driver); err != nil {
		t.Fatal(err)
	}
	return p
}

// close checks that nothing was done wrong and nothing is left.
func (p *process) close(t testing.TB) {
	t.Helper()
	if err := p.devices.Close(); err != nil {
		t.Error(err)
	}
	for _, f := range p.driver.Close() {
		t.Errorf("fake device: %s", f)
	}
}

// memory registers an arena on the first device, which the test sees as the fake shows it.
func (p *process) memory(t testing.TB, a *nixl.Agent, size int) (*nixl.Region, []byte) {
	t.Helper()
	arena, err := p.devices.NewArena(0, int64(size))
	if err != nil {
		t.Fatal(err)
	}
	r, err := a.Register(arena, nixl.VRAM, nixl.WithLabel("kv"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if r.Deregister() != nil { // still in use: it ends with the agent
			_ = a.Close()
		}
		if within(arena, 100*time.Millisecond) == nil {
			return
		}
		if a.Close() != nil { // a peer was stopped inside: never to be freed
			p.driver.Discard(arena.Address())
		} else if err := within(arena, 10*time.Second); err != nil {
			t.Error(err)
		}
	})
	return r, p.driver.Bytes(arena.Address())[:size:size]
}

func within(a *cudaipc.Arena, d time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	return a.Close(ctx)
}

// pretended makes a process for each name of an agent; they end with the test.
type pretended struct {
	t    testing.TB
	pool *fenced.Pool

	mu     sync.Mutex
	byName map[string]*process
}

func newPretended(t testing.TB) *pretended {
	return &pretended{t: t, pool: fenced.NewPool(0), byName: map[string]*process{}}
}

func (s *pretended) process(name string) *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.byName[name]
	if p == nil {
		p = newProcess(s.t, 7)
		s.byName[name] = p
		s.t.Cleanup(func() { p.close(s.t) })
	}
	return p
}

func (s *pretended) transports(name string) []nixl.Transport {
	return []nixl.Transport{cudaipc.New(s.pool, s.process(name).devices, nil, fenced.Options{})}
}

func (s *pretended) memory(t testing.TB, a *nixl.Agent, size int) (*nixl.Region, []byte) {
	t.Helper()
	return s.process(a.Name()).memory(t, a, size)
}
