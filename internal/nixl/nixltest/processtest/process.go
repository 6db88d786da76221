//go:build unix

package processtest

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/nixltest"
	"github.com/dynctl/dynctl/internal/orphan"
)

// Role is the task of the second process.
type Role string

// Roles.
const (
	Target    Role = "target"    // offers its memory
	Initiator Role = "initiator" // writes where it is told, for ever
)

// Size is the memory of both processes in bytes, unless SizeEnv says more.
const Size = 4 << 20

// The environment of the second process.
const (
	roleEnv    = "NIXL_TEST_CHILD"
	variantEnv = roleEnv + "_VARIANT"
	// SizeEnv is the size of the memory in bytes.
	SizeEnv = roleEnv + "_SIZE"
)

// Suite are tests of one transport with two processes.
type Suite struct {
	// Name of the transport.
	Name string
	// Variant tells suites of a package apart.
	Variant string
	// Env makes agents that reach each other over the transport only. A peer that is silent
	// for so long is given up; 0 is the transport's default.
	Env func(silence time.Duration) nixltest.Env
	// NothingLeft, if set, checks at the end of a test that everything was given back.
	NothingLeft func(t testing.TB)
}

// Offer is the message of an agent to the other process.
type Offer struct {
	Blob        []byte
	Write, Read string
	Desc        nixl.Desc
	Incarnation string
}

// Host starts an agent with memory and tickets for all of it.
func (s Suite) Host(t testing.TB, name string, silence time.Duration) (*nixl.Agent, *nixl.Region, []byte, Offer) {
	t.Helper()
	e := s.Env(silence)
	a := e.Agent(t, name)
	size, _ := strconv.Atoi(os.Getenv(SizeEnv))
	size = max(size, Size)
	r, mem := e.Region(t, a, size)
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

// Child is the second process, of one of the suites; TestChild of the package calls it. It
// offers its memory and, as an initiator, waits for an offer and writes there for ever.
func Child(t *testing.T, suites ...Suite) {
	role := Role(os.Getenv(roleEnv))
	if role == "" {
		t.Skip("runs in a process that other tests start")
	}
	for _, s := range suites {
		if s.Variant == os.Getenv(variantEnv) {
			s.child(t, role)
			return
		}
	}
	t.Fatalf("there is no variant %q", os.Getenv(variantEnv))
}

func (s Suite) child(t *testing.T, role Role) {
	a, r, mem, mine := s.Host(t, "child", 0)
	nixltest.Fill(mem, 77)
	if err := json.NewEncoder(os.Stdout).Encode(mine); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(os.Stdin)
	if role == Initiator {
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
		n := uint64(Size / parts)
		xs = append(xs, nixltest.New(t, a, nixl.Write, []nixl.Desc{r.Desc(i*n, n)}, []nixl.Desc{{Addr: there.Desc.Addr + i*n, Len: n}}, "parent",
			nixl.TransferOpts{Ticket: ParseTicket(t, there.Write)}))
	}
	for i := byte(0); ; i++ {
		mem[0], mem[Size-1] = i, i
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

// Start starts the second process.
func (s Suite) Start(t testing.TB, role Role) *Process {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestChild$", "-test.count=1")
	cmd.Env = append(os.Environ(), roleEnv+"="+string(role), variantEnv+"="+s.Variant)
	cmd.Stderr = t.Output()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := orphan.Start(cmd); err != nil {
		t.Fatal(err)
	}
	p := &Process{cmd: cmd, stdin: stdin}
	t.Cleanup(p.Kill)
	if err := json.NewDecoder(stdout).Decode(&p.Offer); err != nil {
		t.Fatalf("child does not start: %v", err)
	}
	return p
}

// Writing starts a process that writes into this one all the time.
func (s Suite) Writing(t testing.TB, there Offer, b *nixl.Agent) *Process {
	t.Helper()
	p := s.Start(t, Initiator)
	p.WriteAll(t, there, b)
	return p
}

// WriteAll tells an initiator where to write, and returns when it has written there.
func (p *Process) WriteAll(t testing.TB, there Offer, b *nixl.Agent) {
	t.Helper()
	before := b.Stats().InBytes
	p.Write(t, there)
	nixltest.Poll(t, "the child writes", func() bool { return b.Stats().InBytes > before+2*Size })
}

// Write tells an initiator where to write, once it is refused where it does.
func (p *Process) Write(t testing.TB, there Offer) {
	t.Helper()
	if err := json.NewEncoder(p.stdin).Encode(there); err != nil {
		t.Fatal(err)
	}
}

// Kill ends the process at once.
func (p *Process) Kill() {
	if p.cmd.ProcessState == nil {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	}
}

// End lets the process end by itself, and waits for that.
func (p *Process) End() {
	_ = p.stdin.Close()
	_ = p.cmd.Wait() // it was told to write where it may not: its test may have failed
}

// Stop stops the process and returns when it is stopped.
func (p *Process) Stop(t testing.TB) {
	t.Helper()
	p.Signal(t, unix.SIGSTOP)
	for {
		var status unix.WaitStatus
		_, err := unix.Wait4(p.cmd.Process.Pid, &status, unix.WUNTRACED, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || !status.Stopped() {
			t.Fatalf("the child did not stop: %v, %v", status, err)
		}
		return
	}
}

// Signal sends a signal to the process.
func (p *Process) Signal(t testing.TB, s os.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// WantDown waits for the event that the process is gone.
func (p *Process) WantDown(t testing.TB, a *nixl.Agent, inbound bool) {
	t.Helper()
	select {
	case d := <-a.PeerDowns():
		if d.Peer != "child" || d.Incarnation != p.Offer.Incarnation || d.Inbound != inbound || d.Cause == nil {
			t.Errorf("event = %+v", d)
		}
	case <-time.After(time.Minute):
		t.Fatal("no event")
	}
}
