//go:build linux

package ucx_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/nixltest"
	"github.com/dynctl/dynctl/internal/nixl/ucx"
)

// The tests here run a second process: this test binary again, with childEnv set.
const (
	childEnv  = "NIXL_UCX_TEST_CHILD"
	childSize = 16 << 20
)

// offer is what an agent tells the other process.
type offer struct {
	Blob        []byte
	Write, Read string
	Desc        nixl.Desc
	Incarnation string
	Direct      bool // one-sided access
}

// host starts an agent with an arena and tickets for all of it.
func host(t testing.TB, name string, o ucx.Options) (*nixl.Agent, *nixl.Region, []byte, offer) {
	t.Helper()
	e := env(o)
	a := e.Agent(t, name)
	const size = childSize
	r, mem := e.Region(t, a, size)
	d := r.Desc(0, uint64(size))
	return a, r, mem, offer{
		Blob: a.Metadata(), Desc: d, Incarnation: a.Incarnation(),
		Write: nixltest.Ticket(t, a, nixl.Write, d).String(), Read: nixltest.Ticket(t, a, nixl.Read, d).String(),
	}
}

func ticket(t testing.TB, s string) nixl.TicketID {
	t.Helper()
	id, err := nixl.ParseTicketID(s)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// TestChild is the second process. It offers its memory and, as an initiator, waits
// for an offer and writes there for ever.
func TestChild(t *testing.T) {
	role := os.Getenv(childEnv)
	if role == "" {
		t.Skip("runs in a process that other tests start")
	}
	o := overTCP(ucx.Options{})
	if role == "device" {
		o = emulated(ucx.Options{})
	}
	a, r, mem, mine := host(t, "child", o)
	nixltest.Fill(mem, 77)
	if err := json.NewEncoder(os.Stdout).Encode(mine); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(os.Stdin)
	if role != "target" {
		commands := json.NewDecoder(in)
		var there offer
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
func writeUntilRefused(t testing.TB, a *nixl.Agent, r *nixl.Region, mem []byte, there offer) {
	t.Helper()
	const parts = 4
	var xs []*nixl.Transfer
	for i := range uint64(parts) {
		n := uint64(childSize / parts)
		xs = append(xs, nixltest.New(t, a, nixl.Write, []nixl.Desc{r.Desc(i*n, n)}, []nixl.Desc{{Addr: there.Desc.Addr + i*n, Len: n}}, "parent",
			nixl.TransferOpts{Ticket: ticket(t, there.Write)}))
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

// child is a running second process.
type child struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	offer offer
}

func startChild(t testing.TB, role string) *child {
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
	c := &child{cmd: cmd, stdin: stdin}
	t.Cleanup(c.kill)
	if err := json.NewDecoder(stdout).Decode(&c.offer); err != nil {
		t.Fatalf("child does not start: %v", err)
	}
	return c
}

func (c *child) kill() {
	if c.cmd.ProcessState == nil {
		_ = c.cmd.Process.Kill()
		_ = c.cmd.Wait()
	}
}

// stop stops the process and returns when it is stopped.
func (c *child) stop(t testing.TB) {
	t.Helper()
	c.signal(t, unix.SIGSTOP)
	nixltest.Poll(t, "the child is stopped", func() bool {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.cmd.Process.Pid))
		return err == nil && strings.Contains(string(b), ") T ")
	})
}

func (c *child) signal(t testing.TB, s os.Signal) {
	t.Helper()
	if err := c.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// writing starts a child that writes into the parent all the time.
func writing(t testing.TB, there offer, b *nixl.Agent) *child {
	t.Helper()
	role := "initiator"
	if there.Direct {
		role = "device"
	}
	c := startChild(t, role)
	if err := json.NewEncoder(c.stdin).Encode(there); err != nil {
		t.Fatal(err)
	}
	before := b.Stats().InBytes
	nixltest.Poll(t, "the child writes", func() bool { return b.Stats().InBytes > before+2*childSize })
	return c
}

// wantDown waits for the event that the child is gone.
func wantDown(t testing.TB, a *nixl.Agent, c *child, inbound bool) {
	t.Helper()
	select {
	case d := <-a.PeerDowns():
		if d.Peer != "child" || d.Incarnation != c.offer.Incarnation || d.Inbound != inbound || d.Cause == nil {
			t.Errorf("event = %+v", d)
		}
	case <-time.After(time.Minute):
		t.Fatal("no event")
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
