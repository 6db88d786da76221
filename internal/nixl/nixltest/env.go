package nixltest

import (
	"bytes"
	"context"
	"encoding/binary"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/handshake"
	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/patience"
)

// Env makes transports for agents that shall reach one another. It is made anew
// for every test.
type Env struct {
	Name       string
	Transports func() []nixl.Transport
	// Arenas registers memory of arenas, which other processes can map, instead of
	// heap memory.
	Arenas bool
	// Named, if set, makes the transports of the agent of that name, in the place of
	// Transports: agents that pretend to be in different processes.
	Named func(agent string) []nixl.Transport
	// Memory, if set, registers memory of that size under the label "kv" in the place of
	// Region, and returns how the test sees it.
	Memory func(t testing.TB, a *nixl.Agent, size int) (*nixl.Region, []byte)
}

// Key is that of all agents of tests, in all their processes.
var Key = handshake.NewKey([]byte("a key that tests have, and nobody else"[:32]))

// limit is the time after which a step of a test counts as hung.
const limit = time.Minute

// Heap is memory on the Go heap, which the race detector watches.
type Heap []byte

// Bytes returns the memory.
func (h Heap) Bytes() []byte { return h }

// Agent starts an agent that is closed with the test.
func (e Env) Agent(t testing.TB, name string, change ...func(*nixl.Config)) *nixl.Agent {
	t.Helper()
	cfg := nixl.Config{Name: name, HostID: "host", Key: Key, Log: logger(t)}
	if e.Named != nil {
		cfg.Transports = e.Named(name)
	} else {
		cfg.Transports = e.Transports()
	}
	for _, f := range change {
		f(&cfg)
	}
	a, err := nixl.NewAgent(cfg)
	if err != nil {
		t.Fatalf("start agent %s: %v", name, err)
	}
	t.Cleanup(func() { _ = a.Close() })
	return a
}

func logger(t testing.TB) *slog.Logger {
	if os.Getenv("NIXL_TEST_LOG") == "" {
		return nil
	}
	return slog.New(slog.NewTextHandler(t.Output(), nil))
}

// Region registers size bytes of heap memory.
func Region(t testing.TB, a *nixl.Agent, size int) (*nixl.Region, []byte) {
	t.Helper()
	mem := make(Heap, size)
	r, err := a.Register(mem, nixl.DRAM, nixl.WithLabel("kv"))
	if err != nil {
		t.Fatal(err)
	}
	return r, mem
}

// Region registers size bytes of the memory the transports need.
func (e Env) Region(t testing.TB, a *nixl.Agent, size int) (*nixl.Region, []byte) {
	t.Helper()
	if e.Memory != nil {
		return e.Memory(t, a, size)
	}
	if !e.Arenas {
		return Region(t, a, size)
	}
	arena, err := nixl.NewArena(int64(size))
	if err != nil {
		t.Fatal(err)
	}
	r, err := a.Register(exactly{arena, size}, nixl.DRAM, nixl.WithLabel("kv"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if r.Deregister() != nil { // still in use: it ends with the agent
			_ = a.Close()
		}
		if err := arena.Close(); err != nil {
			t.Error(err)
		}
	})
	return r, arena.Bytes()[:size]
}

// exactly is the beginning of an arena.
type exactly struct {
	*nixl.Arena
	size int
}

func (x exactly) Bytes() []byte { return x.Arena.Bytes()[:x.size] }

// Load makes b known to a.
func Load(t testing.TB, a, b *nixl.Agent) {
	t.Helper()
	name, err := a.LoadRemote(b.Metadata())
	if err != nil || name != b.Name() {
		t.Fatalf("LoadRemote() = %q, %v", name, err)
	}
}

// Remote returns the region "kv" of b as a sees it.
func Remote(t testing.TB, a, b *nixl.Agent) nixl.RemoteRegion {
	t.Helper()
	r, err := a.RemoteRegion(b.Name(), "kv")
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Ticket opens a ticket without deadline.
func Ticket(t testing.TB, a *nixl.Agent, op nixl.Op, descs ...nixl.Desc) nixl.TicketID {
	t.Helper()
	id, err := a.OpenTicket(nixl.TicketSpec{Access: op, Descs: descs, Tag: t.Name()})
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// New prepares a transfer of one or more pieces.
func New(t testing.TB, a *nixl.Agent, op nixl.Op, local, remote []nixl.Desc, peer string, o nixl.TransferOpts) *nixl.Transfer {
	t.Helper()
	x, err := a.NewTransfer(op, local, remote, peer, o)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// Do posts a transfer and waits for its end.
func Do(t testing.TB, x *nixl.Transfer) error {
	t.Helper()
	x.Post()
	return End(t, x)
}

// End waits for the end of a posted transfer.
func End(t testing.TB, x *nixl.Transfer) error {
	t.Helper()
	select {
	case <-x.Done():
	case <-time.After(limit):
		t.Fatalf("transfer hangs in status %s", x.Status())
	}
	return x.Err()
}

// WantStatus checks the outcome of a transfer.
func WantStatus(t testing.TB, err error, want ...nixl.Status) {
	t.Helper()
	for _, w := range want {
		if nixl.StatusOf(err) == w {
			return
		}
	}
	t.Fatalf("got %v (%s), want %v", err, nixl.StatusOf(err), want)
}

// Next returns the next notification.
func Next(t testing.TB, a *nixl.Agent) nixl.Notification {
	t.Helper()
	select {
	case n := <-a.Notifications():
		return n
	case <-time.After(limit):
		t.Fatal("no notification")
		return nixl.Notification{}
	}
}

// NoMore checks that no notification waits.
func NoMore(t testing.TB, a *nixl.Agent) {
	t.Helper()
	Poll(t, "no more notifications wait", func() bool { return a.Stats().NotifyWaiting == 0 })
}

// Drain drops notifications until none waits.
func Drain(t testing.TB, a *nixl.Agent) {
	t.Helper()
	Poll(t, "notifications are drained", func() bool {
		select {
		case <-a.Notifications():
		default:
		}
		return a.Stats().NotifyWaiting == 0
	})
}

// Poll waits until the condition holds, which must be soon.
func Poll(t testing.TB, what string, cond func() bool) {
	t.Helper()
	pause := 20 * time.Microsecond
	for end := time.Now().Add(patience.Soon); !cond(); time.Sleep(pause) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
		pause = min(pause*5/4, time.Millisecond)
	}
}

// Context ends with the test's patience.
func Context(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}

// Fill writes a pattern that depends on the seed and repeats nowhere.
func Fill(b []byte, seed uint64) {
	const step = 0x9E3779B97F4A7C15 // odd: the words differ
	word := (seed + 1) * 0xD1342543DE82EF95
	for len(b) >= 8 {
		binary.LittleEndian.PutUint64(b, word)
		b, word = b[8:], word+step
	}
	for i := range b {
		b[i] = byte(word >> (8 * i))
	}
}

// Blank sets all bytes.
func Blank(b []byte, to byte) {
	if len(b) == 0 {
		return
	}
	b[0] = to
	for n := 1; n < len(b); n *= 2 {
		copy(b[n:], b[:n])
	}
}

// WantBlank checks that memory is as Blank has left it.
func WantBlank(t testing.TB, b []byte, is byte) {
	t.Helper()
	if len(b) == 0 || b[0] == is && bytes.Equal(b[1:], b[:len(b)-1]) {
		return
	}
	at := slices.IndexFunc(b, func(x byte) bool { return x != is })
	t.Fatalf("byte %d of %d is %#x: it was written under a revoked ticket", at, len(b), b[at])
}

// Same checks that got equals want.
func Same(t testing.TB, got, want []byte) {
	t.Helper()
	if bytes.Equal(got, want) {
		return
	}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("memory differs from byte %d of %d on: got %#x, want %#x", i, len(want), got[i], want[i])
		}
	}
}

// SameAt checks memory of an agent that peers write. The race detector does not
// see that one end of a socket follows the other; a lock of the agent tells it.
func SameAt(t testing.TB, a *nixl.Agent, got, want []byte) {
	t.Helper()
	a.Tickets()
	Same(t, got, want)
	a.Tickets()
}

// Blocks returns the descriptors of n blocks of the given size, in random order.
func Blocks(r *rand.Rand, desc func(off, n uint64) nixl.Desc, n int, size uint64) (descs []nixl.Desc, order []int) {
	order = r.Perm(n)
	for _, i := range order {
		descs = append(descs, desc(uint64(i)*size, size))
	}
	return descs, order
}
