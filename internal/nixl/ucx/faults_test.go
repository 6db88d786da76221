//go:build linux

package ucx_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/nixltest"
	"github.com/dynctl/dynctl/internal/nixl/ucx"
)

// TestTwoProcesses writes and reads between processes, in few large and many small
// pieces, kills the target in the middle, and goes on with its successor under the
// same name.
func TestTwoProcesses(t *testing.T) {
	nothingLeft(t)
	a, r, mem, _ := host(t, "parent", overTCP(ucx.Options{}))
	rnd := rand.New(rand.NewPCG(1, 2))
	var stale *nixl.Transfer
	for round := range 2 {
		c := startChild(t, "target")
		if _, err := a.LoadRemote(c.offer.Blob); err != nil {
			t.Fatal(err)
		}
		if stale != nil && stale.Post() != nixl.ErrNotFound {
			t.Errorf("post to the predecessor = %s", stale.Status())
		}
		const half = uint64(childSize / 2)
		for _, size := range []uint64{half, 1 << 20, 64 << 10, 4 << 10, 513} {
			n := min(int(half/size), 16384)
			nixltest.Fill(mem, uint64(round)+size)
			desc := func(off, n uint64) nixl.Desc { return nixl.Desc{Addr: c.offer.Desc.Addr + off, Len: n} }
			local, from := nixltest.Blocks(rnd, r.Desc, n, size)
			remote, _ := nixltest.Blocks(rnd, desc, n, size)
			back := make([]nixl.Desc, n)
			for i := range back {
				back[i] = r.Desc(half+uint64(from[i])*size, size)
			}
			w := nixltest.New(t, a, nixl.Write, local, remote, "child", nixl.TransferOpts{Ticket: ticket(t, c.offer.Write), HasNotify: true})
			nixltest.WantStatus(t, nixltest.Do(t, w), nixl.Success)
			rd := nixltest.New(t, a, nixl.Read, back, remote, "child", nixl.TransferOpts{Ticket: ticket(t, c.offer.Read), HasNotify: true})
			nixltest.WantStatus(t, nixltest.Do(t, rd), nixl.Success)
			if moved := size * uint64(n); !bytes.Equal(mem[:moved], mem[half:half+moved]) {
				t.Fatalf("%d pieces of %d bytes: what was read is not what was written", n, size)
			}
			stale = w
		}
		if res, err := a.SelfTest(nixltest.Context(t), "child"); err != nil || res.Transport != ucx.Name {
			t.Error(res, err)
		}

		xs := busy(t, a, r, c)
		killed := time.Now()
		c.kill()
		allDisconnected(t, xs, killed, noticed)
		wantDown(t, a, c, false)
	}
}

// busy posts several writes and reads of all of the child's memory.
func busy(t *testing.T, a *nixl.Agent, r *nixl.Region, c *child) []*nixl.Transfer {
	t.Helper()
	var xs []*nixl.Transfer
	for range 40 {
		for op, id := range map[nixl.Op]string{nixl.Write: c.offer.Write, nixl.Read: c.offer.Read} {
			xs = append(xs, nixltest.New(t, a, op, []nixl.Desc{r.Desc(0, childSize)}, []nixl.Desc{c.offer.Desc}, "child",
				nixl.TransferOpts{Ticket: ticket(t, id)}))
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

// wantQuiet checks that the memory keeps what this process writes into it.
func wantQuiet(t *testing.T, mem []byte) {
	t.Helper()
	for i := range mem {
		mem[i] = 0xEE
	}
	time.Sleep(50 * time.Millisecond) // a writer that was let in would be at it
	for i := range mem {
		if mem[i] != 0xEE {
			t.Fatalf("byte %d was written after the ticket was revoked", i)
		}
	}
}

// TestInitiatorDies kills a process in the middle of its writes into this one: its
// fences are void as soon as it is gone, and the memory is quiet.
func TestInitiatorDies(t *testing.T) {
	nothingLeft(t)
	for range 3 {
		b, _, mem, there := host(t, "parent", overTCP(ucx.Options{}))
		c := writing(t, there, b)
		killed := time.Now()
		c.kill()
		wantDown(t, b, c, true)
		if err := b.RevokeTicket(nixltest.Context(t), ticket(t, there.Write)); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(killed); took > noticed {
			t.Errorf("quiet after %s", took)
		}
		if in, _ := b.InFlight(); in != 0 {
			t.Errorf("%d accesses are left", in)
		}
		wantQuiet(t, mem)
	}
}

// TestRevokeAcrossProcesses revokes, again and again, while another process writes:
// what this process puts into the memory afterwards stays.
func TestRevokeAcrossProcesses(t *testing.T) {
	nothingLeft(t)
	b, r, mem, there := host(t, "parent", overTCP(ucx.Options{}))
	c := writing(t, there, b)
	if err := b.RevokeTicket(nixltest.Context(t), ticket(t, there.Write)); err != nil {
		t.Fatal(err)
	}
	commands := json.NewEncoder(c.stdin)
	var longest time.Duration
	for round := range 40 {
		id := nixltest.Ticket(t, b, nixl.Write, r.Desc(0, childSize))
		there.Write = id.String()
		before := b.Stats().InBytes
		if err := commands.Encode(there); err != nil {
			t.Fatal(err)
		}
		nixltest.Poll(t, "the child writes", func() bool {
			in, _ := b.InFlight()
			return b.Stats().InBytes > before+uint64(round)<<20 || (round == 0 && in > 0)
		})
		begin := time.Now()
		if err := b.RevokeTicket(nixltest.Context(t), id); err != nil {
			t.Fatal(err)
		}
		longest = max(longest, time.Since(begin))
		for i := range mem {
			mem[i] = byte(round)
		}
		for i := range mem {
			if mem[i] != byte(round) {
				t.Fatalf("round %d: byte %d was written under a revoked ticket", round, i)
			}
		}
	}
	t.Logf("the longest revocation took %s", longest)
}

// TestInitiatorStopped stops the writer: where bytes come in messages the ticket is
// revoked at once, and nothing arrives when the writer goes on. So it is after its
// silence has ended the connection.
func TestInitiatorStopped(t *testing.T) {
	const silence = time.Second
	for _, c := range []struct {
		name string
		lost bool // wait until the connection counts as lost
		end  unix.Signal
	}{
		{"goes on", false, unix.SIGCONT},
		{"dies", false, unix.SIGKILL},
		{"goes on after silence", true, unix.SIGCONT},
	} {
		t.Run(c.name, func(t *testing.T) {
			nothingLeft(t)
			for range 5 {
				b, _, mem, there := host(t, "parent", overTCP(ucx.Options{SilenceTimeout: silence}))
				child := writing(t, there, b)
				child.stop(t)
				if c.lost {
					wantDown(t, b, child, true)
				}
				ctx, cancel := context.WithTimeout(t.Context(), silence/2)
				err := b.RevokeTicket(ctx, ticket(t, there.Write))
				cancel()
				if err != nil {
					t.Fatal(err)
				}
				for i := range mem {
					mem[i] = 0xEE
				}
				child.signal(t, c.end)
				wantQuiet(t, mem)
				child.kill()
				_ = b.Close()
			}
		})
	}
}

// TestDeviceOfStoppedInitiator stops a writer whose device is at work: its ticket
// cannot be revoked until it goes on, or until this end of the connection was closed for
// its silence. Then nothing arrives any more.
func TestDeviceOfStoppedInitiator(t *testing.T) {
	const silence = 1500 * time.Millisecond
	for _, lost := range []bool{false, true} {
		t.Run(map[bool]string{false: "goes on", true: "goes on after silence"}[lost], func(t *testing.T) {
			nothingLeft(t)
			inside := false
			for range 20 {
				b, _, mem, there := host(t, "parent", emulated(ucx.Options{SilenceTimeout: silence}))
				there.Direct = true
				child := writing(t, there, b)
				child.stop(t)
				id := ticket(t, there.Write)
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				err := b.RevokeTicket(ctx, id)
				cancel()
				if err != nil {
					inside = true
					if !errors.Is(err, context.DeadlineExceeded) {
						t.Fatalf("revoke: %v", err)
					}
					if in, _ := b.InFlight(); in == 0 {
						t.Error("no access is open, and the ticket is not revoked")
					}
					if !lost {
						child.signal(t, unix.SIGCONT)
					}
					if err := b.RevokeTicket(nixltest.Context(t), id); err != nil {
						t.Fatal(err)
					}
				}
				for i := range mem {
					mem[i] = 0xEE
				}
				child.signal(t, unix.SIGCONT)
				wantQuiet(t, mem)
				_ = child.stdin.Close() // an orderly end
				_ = child.cmd.Wait()
				_ = b.Close()
				if inside {
					return
				}
			}
			t.Fatal("the child was never stopped in the middle of an access")
		})
	}
}

// TestTargetStopped stops the target's process: the kernel keeps its connection
// alive, so that only silence tells.
func TestTargetStopped(t *testing.T) {
	nothingLeft(t)
	const silence = time.Second
	a, r, _, _ := host(t, "parent", overTCP(ucx.Options{SilenceTimeout: silence}))
	c := startChild(t, "target")
	if _, err := a.LoadRemote(c.offer.Blob); err != nil {
		t.Fatal(err)
	}
	xs := busy(t, a, r, c)
	begin := time.Now()
	c.stop(t)
	allDisconnected(t, xs, begin, 4*silence)
}
