//go:build linux

package fencedtest

import (
	"context"
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/fenced"
	"github.com/dynctl/dynctl/internal/nixl/nixltest"
	"github.com/dynctl/dynctl/internal/nixl/nixltest/processtest"
	"github.com/dynctl/dynctl/internal/patience"
)

// Suite are tests of one transport with two processes.
type Suite struct {
	// Name of the transport.
	Name string
	// Env makes agents that reach each other over the transport only.
	Env func(o fenced.Options) nixltest.Env
}

// Processes are the tests that hold for every transport.
func (s Suite) Processes() processtest.Suite {
	return processtest.Suite{
		Name: s.Name, NothingLeft: NothingLeft,
		Env: func(silence time.Duration) nixltest.Env { return s.Env(fenced.Options{SilenceTimeout: silence}) },
	}
}

// Run runs the tests: those that hold for every transport, and those of fences.
func (s Suite) Run(t *testing.T) {
	s.Processes().Run(t)
	t.Run("initiator stopped", s.initiatorStopped)
	t.Run("close with stopped initiator", s.closeWithStoppedInitiator)
}

// stoppedInside returns a child that was stopped while it was inside a fence, so
// that its ticket cannot be revoked.
func (s Suite) stoppedInside(t *testing.T, silence time.Duration) (*nixl.Agent, []byte, *processtest.Process, nixl.TicketID) {
	t.Helper()
	p := s.Processes()
	b, r, mem, there := p.Host(t, "parent", silence)
	c := p.Writing(t, there, b)
	for end := time.Now().Add(patience.Soon); time.Now().Before(end); { // a matter of chance each time
		c.Stop(t)
		id := processtest.ParseTicket(t, there.Write)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		err := b.RevokeTicket(ctx, id)
		cancel()
		if err == nil { // between two pieces: nothing may happen when it goes on
			processtest.Mark(mem)
			c.Signal(t, unix.SIGCONT)
			processtest.WantQuiet(t, mem)
			there.Write = nixltest.Ticket(t, b, nixl.Write, r.Desc(0, processtest.Size)).String()
			c.WriteAll(t, there, b)
			continue
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("revoke: %v", err)
		}
		if in, _ := b.InFlight(); in == 0 || b.Tickets() != 2 {
			t.Errorf("%d accesses, %d tickets while the writer is stopped", in, b.Tickets())
		}
		return b, mem, c, id
	}
	t.Fatal("the child was never stopped inside a fence")
	return nil, nil, nil, nixl.TicketID{}
}

// initiatorStopped stops the writer inside a fence: the ticket cannot be
// revoked until it goes on or dies, whatever becomes of the connection.
func (s Suite) initiatorStopped(t *testing.T) {
	const silence = 500 * time.Millisecond
	for _, c := range []struct {
		name    string
		silence time.Duration
		lost    bool // wait until the connection counts as lost
		end     unix.Signal
	}{
		{"goes on", 0, false, unix.SIGCONT},
		{"dies", 0, false, unix.SIGKILL},
		{"goes on after silence", silence, true, unix.SIGCONT},
		{"dies after silence", silence, true, unix.SIGKILL},
	} {
		t.Run(c.name, func(t *testing.T) {
			NothingLeft(t)
			b, mem, child, id := s.stoppedInside(t, c.silence)
			if c.lost {
				child.WantDown(t, b, true)
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer cancel()
				if b.RevokeTicket(ctx, id) == nil {
					t.Fatal("revoked while the writer is stopped inside")
				}
			}
			child.Signal(t, c.end)
			if err := b.RevokeTicket(nixltest.Context(t), id); err != nil {
				t.Fatal(err)
			}
			processtest.WantQuiet(t, mem)
		})
	}
}

// closeWithStoppedInitiator closes an agent whose peer is stopped inside a
// fence: it does not hang, and does not claim that the ticket was revoked.
func (s Suite) closeWithStoppedInitiator(t *testing.T) {
	NothingLeft(t)
	b, _, child, id := s.stoppedInside(t, 0)
	begin := time.Now()
	if err := b.Close(); nixl.StatusOf(err) != nixl.ErrBackend {
		t.Errorf("Close() = %v", err)
	}
	if took := time.Since(begin); took > nixl.CloseGrace+20*time.Second {
		t.Errorf("Close took %s", took)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if b.RevokeTicket(ctx, id) == nil {
		t.Error("the ticket was revoked")
	}
	child.Kill()
}
