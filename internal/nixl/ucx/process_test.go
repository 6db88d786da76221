//go:build linux

package ucx_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dynctl/dynctl/internal/nixl/nixltest"
	"github.com/dynctl/dynctl/internal/nixl/nixltest/processtest"
	"github.com/dynctl/dynctl/internal/nixl/ucx"
)

// What two processes are tested with: bytes in messages, and one-sided access.
var (
	messages = processtest.Suite{
		Name: ucx.Name, NothingLeft: nothingLeft,
		Env: func(silence time.Duration) nixltest.Env { return env(overTCP(ucx.Options{SilenceTimeout: silence})) },
	}
	onDevice = processtest.Suite{
		Name: ucx.Name, Variant: "device",
		Env: func(silence time.Duration) nixltest.Env { return env(emulated(ucx.Options{SilenceTimeout: silence})) },
	}
)

func TestChild(t *testing.T) { processtest.Child(t, messages, onDevice) }

func TestProcesses(t *testing.T) {
	needUCX(t)
	messages.Run(t)
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
				b, _, mem, there := messages.Host(t, "parent", silence)
				child := messages.Writing(t, there, b)
				child.Stop(t)
				if c.lost {
					child.WantDown(t, b, true)
				}
				ctx, cancel := context.WithTimeout(t.Context(), silence/2)
				err := b.RevokeTicket(ctx, processtest.ParseTicket(t, there.Write))
				cancel()
				if err != nil {
					t.Fatal(err)
				}
				processtest.Mark(mem)
				child.Signal(t, c.end)
				processtest.WantQuiet(t, mem)
				child.Kill()
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
				b, _, mem, there := onDevice.Host(t, "parent", silence)
				child := onDevice.Writing(t, there, b)
				child.Stop(t)
				id := processtest.ParseTicket(t, there.Write)
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
						child.Signal(t, unix.SIGCONT)
					}
					if err := b.RevokeTicket(nixltest.Context(t), id); err != nil {
						t.Fatal(err)
					}
				}
				processtest.Mark(mem)
				child.Signal(t, unix.SIGCONT)
				processtest.WantQuiet(t, mem)
				child.End() // in an orderly way
				_ = b.Close()
				if inside {
					return
				}
			}
			t.Fatal("the child was never stopped in the middle of an access")
		})
	}
}

// nothingLeft checks at the end of a test that everything was given back: no socket,
// no pipe, no event descriptor. What UCX keeps for the process is opened before.
func nothingLeft(t testing.TB) {
	t.Helper()
	needUCX(t)
	e := env(overTCP(ucx.Options{}))
	if err := e.Agent(t, "first").Close(); err != nil {
		t.Fatal(err)
	}
	before := descriptors(t)
	t.Cleanup(func() {
		var after int
		for range 2000 {
			if after = descriptors(t); after <= before {
				return
			}
			time.Sleep(time.Millisecond)
		}
		t.Errorf("%d descriptors before, %d after", before, after)
	})
}

func descriptors(t testing.TB) int {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(fds)
}
