//go:build linux

package fencedtest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/fenced"
	"github.com/dynctl/dynctl/internal/nixl/nixltest"
)

// Tests with a second process run the test binary again, with childEnv set.
const (
	childEnv  = "NIXL_FENCED_TEST_CHILD"
	childSize = 16 << 20
	// SizeEnv, in the environment, is the size of the memory in bytes.
	SizeEnv = childEnv + "_SIZE"
)

// Suite are tests of one transport with two processes.
type Suite struct {
	// Name of the transport.
	Name string
	// Env makes agents that reach each other over the transport only.
	Env func(o fenced.Options) nixltest.Env
}

// Offer is what an agent tells the other process.
type Offer struct {
	Blob        []byte
	Write, Read string
	Desc        nixl.Desc
	Incarnation string
}

// host starts an agent with an arena and tickets for all of it.
func (s Suite) host(t testing.TB, name string, o fenced.Options) (*nixl.Agent, *nixl.Region, []byte, Offer) {
	t.Helper()
	a := s.Env(o).Agent(t, name)
	size, _ := strconv.Atoi(os.Getenv(SizeEnv))
	size = max(size, childSize)
	r, mem := s.Env(o).Region(t, a, size)
	d := r.Desc(0, uint64(size))
	return a, r, mem, Offer{
		Blob: a.Metadata(), Desc: d, Incarnation: a.Incarnation(),
		Write: nixltest.Ticket(t, a, nixl.Write, d).String(), Read: nixltest.Ticket(t, a, nixl.Read, d).String(),
	}
}

// ParseTicket reads a ticket of an offer.
func ParseTicket(t testing.TB, s string) nixl.TicketID {
	t.Helper()
	id, err := nixl.ParseTicketID(s)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// Child is the second process; TestChild of the package calls it. It offers its memory and, as an initiator, waits
// for an offer and writes there for ever.
func (s Suite) Child(t *testing.T) {
	role := os.Getenv(childEnv)
	if role == "" {
		t.Skip("runs in a process that other tests start")
	}
	a, r, mem, mine := s.host(t, "child", fenced.Options{})
	nixltest.Fill(mem, 77)
	if err := json.NewEncoder(os.Stdout).Encode(mine); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(os.Stdin)
	if role == "initiator" {
		commands := json.NewDecoder(in)
		var there Offer
		for commands.Decode(&there) == nil { // each one with another ticket
			if _, err := a.LoadRemote(there.Blob); err != nil {
				t.Fatal(err)
			}
			writeUntilRefused(t, a, r, mem, there)
		}
	}
	_, _ = io.Copy(io.Discard, in) // until the parent is gone
}

// writeUntilRefused writes all of the parent's memory, again and again.
func writeUntilRefused(t testing.TB, a *nixl.Agent, r *nixl.Region, mem []byte, there Offer) {
	t.Helper()
	const parts = 4
	var xs []*nixl.Transfer
	for i := range uint64(parts) {
		n := uint64(childSize / parts)
		xs = append(xs, nixltest.New(t, a, nixl.Write, []nixl.Desc{r.Desc(i*n, n)}, []nixl.Desc{{Addr: there.Desc.Addr + i*n, Len: n}}, "parent",
			nixl.TransferOpts{Ticket: ParseTicket(t, there.Write)}))
	}
	for i := byte(0); ; i++ {
		mem[0], mem[childSize-1] = i, i
		for _, x := range xs {
			x.Post()
		}
		refused := false
		for _, x := range xs {
			refused = nixltest.End(t, x) != nil || refused
		}
		if refused {
			return
		}
	}
}

// Process is a running second process.
type Process struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	Offer Offer
}

// Start starts the second process, as a target or an initiator.
func Start(t testing.TB, role string) *Process {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestChild$", "-test.count=1")
	cmd.Env = append(os.Environ(), childEnv+"="+role)
	cmd.Stderr = t.Output()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := &Process{cmd: cmd, stdin: stdin}
	t.Cleanup(c.kill)
	if err := json.NewDecoder(stdout).Decode(&c.Offer); err != nil {
		t.Fatalf("child does not start: %v", err)
	}
	return c
}

func (c *Process) kill() {
	if c.cmd.ProcessState == nil {
		_ = c.cmd.Process.Kill()
		_ = c.cmd.Wait()
	}
}

// stop stops the process and returns when it is stopped.
func (c *Process) stop(t testing.TB) {
	t.Helper()
	c.signal(t, unix.SIGSTOP)
	nixltest.Poll(t, "the child is stopped", func() bool {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.cmd.Process.Pid))
		return err == nil && strings.Contains(string(b), ") T ")
	})
}

func (c *Process) signal(t testing.TB, s os.Signal) {
	t.Helper()
	if err := c.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// writing starts a child that writes into the parent all the time.
func writing(t testing.TB, there Offer, b *nixl.Agent) *Process {
	t.Helper()
	c := Start(t, "initiator")
	if err := json.NewEncoder(c.stdin).Encode(there); err != nil {
		t.Fatal(err)
	}
	before := b.Stats().InBytes
	nixltest.Poll(t, "the child writes", func() bool { return b.Stats().InBytes > before+2*childSize })
	return c
}

// wantDown waits for the event that the child is gone.
func wantDown(t testing.TB, a *nixl.Agent, c *Process, inbound bool) {
	t.Helper()
	select {
	case d := <-a.PeerDowns():
		if d.Peer != "child" || d.Incarnation != c.Offer.Incarnation || d.Inbound != inbound || d.Cause == nil {
			t.Errorf("event = %+v", d)
		}
	case <-time.After(time.Minute):
		t.Fatal("no event")
	}
}

// Resources are what this process holds: descriptors, mapped shared memory, and
// sockets among the descriptors.
type Resources struct{ FDs, Maps, Sockets int }

// Held looks at this process.
func Held(t testing.TB) (r Resources) {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	r = Resources{FDs: len(fds), Maps: strings.Count(string(maps), "memfd:")}
	for _, fd := range fds {
		if to, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && strings.HasPrefix(to, "socket:") {
			r.Sockets++
		}
	}
	return r
}

// NothingLeft checks at the end of a test that everything was given back.
func NothingLeft(t testing.TB) {
	t.Helper()
	before := Held(t)
	t.Cleanup(func() {
		var after Resources
		for range 2000 {
			if after = Held(t); after == before {
				return
			}
			time.Sleep(time.Millisecond)
		}
		t.Errorf("held before %+v, after %+v", before, after)
	})
}
