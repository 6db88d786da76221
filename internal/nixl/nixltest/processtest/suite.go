//go:build unix

package processtest

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/nixltest"
)

// Run runs the tests.
func (s Suite) Run(t *testing.T) {
	for _, c := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"two processes", s.twoProcesses},
		{"initiator dies", s.initiatorDies},
		{"revoke across processes", s.revokeAcrossProcesses},
		{"target stopped", s.targetStopped},
	} {
		t.Run(c.name, func(t *testing.T) {
			if s.NothingLeft != nil {
				s.NothingLeft(t)
			}
			c.run(t)
		})
	}
}

// twoProcesses writes and reads between processes, in few large and many small
// pieces, kills the target in the middle, and goes on with its successor under the
// same name.
func (s Suite) twoProcesses(t *testing.T) {
	a, r, mem, _ := s.Host(t, "parent", 0)
	rnd := rand.New(rand.NewPCG(1, 2))
	var stale *nixl.Transfer
	for round := range 2 {
		c := s.Start(t, Target)
		if _, err := a.LoadRemote(c.Offer.Blob); err != nil {
			t.Fatal(err)
		}
		if stale != nil && stale.Post() != nixl.ErrNotFound {
			t.Errorf("post to the predecessor = %s", stale.Status())
		}
		if !a.Known("child", c.Offer.Incarnation) {
			t.Error("the child is not known")
		}
		const half = uint64(Size / 2)
		for _, size := range []uint64{half, 1 << 20, 64 << 10, 4 << 10, 513} {
			n := min(int(half/size), 16384)
			nixltest.Fill(mem, uint64(round)+size)
			desc := func(off, n uint64) nixl.Desc { return nixl.Desc{Addr: c.Offer.Desc.Addr + off, Len: n} }
			local, from := nixltest.Blocks(rnd, r.Desc, n, size)
			remote, _ := nixltest.Blocks(rnd, desc, n, size)
			back := make([]nixl.Desc, n)
			for i := range back {
				back[i] = r.Desc(half+uint64(from[i])*size, size)
			}
			w := nixltest.New(t, a, nixl.Write, local, remote, "child", nixl.TransferOpts{Ticket: ParseTicket(t, c.Offer.Write), HasNotify: true})
			nixltest.WantStatus(t, nixltest.Do(t, w), nixl.Success)
			rd := nixltest.New(t, a, nixl.Read, back, remote, "child", nixl.TransferOpts{Ticket: ParseTicket(t, c.Offer.Read), HasNotify: true})
			nixltest.WantStatus(t, nixltest.Do(t, rd), nixl.Success)
			if moved := size * uint64(n); !bytes.Equal(mem[:moved], mem[half:half+moved]) {
				t.Fatalf("%d pieces of %d bytes: what was read is not what was written", n, size)
			}
			stale = w
		}
		if res, err := a.SelfTest(nixltest.Context(t), "child"); err != nil || res.Transport != s.Name {
			t.Error(res, err)
		}

		xs := busy(t, a, r, c)
		killed := time.Now()
		c.Kill()
		allDisconnected(t, xs, killed, noticed)
		c.WantDown(t, a, false)
	}
}

// busy posts several writes and reads of all of the child's memory.
func busy(t *testing.T, a *nixl.Agent, r *nixl.Region, c *Process) []*nixl.Transfer {
	t.Helper()
	var xs []*nixl.Transfer
	for range 40 {
		for op, id := range map[nixl.Op]string{nixl.Write: c.Offer.Write, nixl.Read: c.Offer.Read} {
			xs = append(xs, nixltest.New(t, a, op, []nixl.Desc{r.Desc(0, Size)}, []nixl.Desc{c.Offer.Desc}, "child",
				nixl.TransferOpts{Ticket: ParseTicket(t, id)}))
		}
	}
	nixltest.WantStatus(t, nixltest.Do(t, xs[0]), nixl.Success) // connected
	for _, x := range xs {
		x.Post()
	}
	return xs
}

// noticed bounds how long the end of a process is not known. It takes milliseconds; on
// silence alone it would take five seconds.
const noticed = 4 * time.Second

// allDisconnected checks that every transfer ends in time, and not all of them well.
func allDisconnected(t *testing.T, xs []*nixl.Transfer, since time.Time, within time.Duration) {
	t.Helper()
	lost := 0
	for _, x := range xs {
		err := nixltest.End(t, x)
		nixltest.WantStatus(t, err, nixl.ErrRemoteDisconnect, nixl.Success)
		if err != nil {
			lost++
		}
	}
	if took := time.Since(since); took > within {
		t.Errorf("the last transfer ended %s after the peer was gone", took)
	}
	if lost == 0 {
		t.Error("no transfer was interrupted")
	}
}

// Mark writes something into all memory that no process writes otherwise.
func Mark(mem []byte) { nixltest.Blank(mem, 0xEE) }

// WantQuiet checks that the memory keeps what this process writes into it.
func WantQuiet(t *testing.T, mem []byte) {
	t.Helper()
	Mark(mem)
	time.Sleep(50 * time.Millisecond) // a writer that was let in would be at it
	nixltest.WantBlank(t, mem, 0xEE)
}

// initiatorDies kills a process in the middle of its writes into this one: its access ends
// as soon as it is gone, and the memory is quiet.
func (s Suite) initiatorDies(t *testing.T) {
	for range 3 {
		b, _, mem, there := s.Host(t, "parent", 0)
		c := s.Writing(t, there, b)
		killed := time.Now()
		c.Kill()
		c.WantDown(t, b, true)
		if err := b.RevokeTicket(nixltest.Context(t), ParseTicket(t, there.Write)); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(killed); took > noticed {
			t.Errorf("quiet after %s", took)
		}
		if in, _ := b.InFlight(); in != 0 {
			t.Errorf("%d accesses are left", in)
		}
		WantQuiet(t, mem)
	}
}

// revokeAcrossProcesses revokes, again and again, while another process writes:
// what this process puts into the memory afterwards stays.
func (s Suite) revokeAcrossProcesses(t *testing.T) {
	b, r, mem, there := s.Host(t, "parent", 0)
	c := s.Writing(t, there, b)
	if err := b.RevokeTicket(nixltest.Context(t), ParseTicket(t, there.Write)); err != nil {
		t.Fatal(err)
	}
	var longest time.Duration
	for round := range 40 {
		id := nixltest.Ticket(t, b, nixl.Write, r.Desc(0, Size))
		there.Write = id.String()
		before := b.Stats().InBytes
		c.Write(t, there)
		nixltest.Poll(t, "the child writes", func() bool {
			in, _ := b.InFlight()
			return b.Stats().InBytes > before+uint64(round)<<17 || (round == 0 && in > 0)
		})
		begin := time.Now()
		if err := b.RevokeTicket(nixltest.Context(t), id); err != nil {
			t.Fatal(err)
		}
		longest = max(longest, time.Since(begin))
		nixltest.Blank(mem, byte(round))
		nixltest.WantBlank(t, mem, byte(round))
	}
	t.Logf("the longest revocation took %s", longest)
}

// targetStopped stops the target's process: the kernel keeps its connection
// alive, so that only silence tells.
func (s Suite) targetStopped(t *testing.T) {
	const silence = time.Second
	a, r, _, _ := s.Host(t, "parent", silence)
	c := s.Start(t, Target)
	if _, err := a.LoadRemote(c.Offer.Blob); err != nil {
		t.Fatal(err)
	}
	xs := busy(t, a, r, c)
	begin := time.Now()
	c.Stop(t)
	allDisconnected(t, xs, begin, 4*silence)
}
