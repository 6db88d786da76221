package tcp_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/nixltest"
	"github.com/dynctl/dynctl/internal/nixl/tcp"

	"golang.org/x/sys/unix"
)

// The tests here run a second process: this test binary again, with childEnv set.
const (
	childEnv  = "NIXL_TCP_TEST_CHILD"
	childSize = 16 << 20
)

// offer is what an agent tells the other process.
type offer struct {
	Blob          []byte
	Write, Read   string
	Desc          nixl.Desc
	Incarnation   string
	StartedWrites bool
}

func env(o tcp.Options) nixltest.Env {
	return nixltest.Env{Name: tcp.Name, Transports: func() []nixl.Transport { return []nixl.Transport{tcp.New(o)} }}
}

// host starts an agent with an arena and tickets for all of it.
func host(t *testing.T, name string, o tcp.Options) (*nixl.Agent, *nixl.Region, []byte, offer) {
	arena, err := nixl.NewArena(childSize)
	if err != nil {
		t.Fatal(err)
	}
	a := env(o).Agent(t, name)
	t.Cleanup(func() { _ = a.Close(); _ = arena.Close() })
	r, err := a.Register(arena, nixl.DRAM, nixl.WithLabel("kv"))
	if err != nil {
		t.Fatal(err)
	}
	d := r.Desc(0, childSize)
	return a, r, arena.Bytes(), offer{
		Blob: a.Metadata(), Desc: d, Incarnation: a.Incarnation(),
		Write: nixltest.Ticket(t, a, nixl.Write, d).String(), Read: nixltest.Ticket(t, a, nixl.Read, d).String(),
	}
}

func ticket(t *testing.T, s string) nixl.TicketID {
	id, err := nixl.ParseTicketID(s)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// TestChild is the second process. It offers its memory and, if it is given an
// offer, writes there until it is killed.
func TestChild(t *testing.T) {
	role := os.Getenv(childEnv)
	if role == "" {
		t.Skip("runs in a process that other tests start")
	}
	a, r, _, mine := host(t, "child", tcp.Options{})
	out := json.NewEncoder(os.Stdout)
	if err := out.Encode(mine); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(os.Stdin)
	if role == "initiator" {
		var there offer
		line, err := in.ReadBytes('\n')
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(line, &there); err != nil {
			t.Fatal(err)
		}
		if _, err := a.LoadRemote(there.Blob); err != nil {
			t.Fatal(err)
		}
		x := nixltest.New(t, a, nixl.Write, []nixl.Desc{r.Desc(0, childSize)}, []nixl.Desc{there.Desc}, "parent",
			nixl.TransferOpts{Ticket: ticket(t, there.Write)})
		for nixltest.Do(t, x) == nil { // until killed
		}
	}
	_, _ = io.Copy(io.Discard, in) // until the parent is gone
}

// child is a running second process.
type child struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	offer offer
}

func startChild(t *testing.T, role string) *child {
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
	for _, x := range xs {
		x.Post()
	}
	nixltest.Poll(t, "a transfer is through", func() bool {
		for _, x := range xs {
			if x.Status() == nixl.Success {
				return true
			}
		}
		return false
	})
	return xs
}

// noticed bounds how long the end of a process is not known. It takes milliseconds; on
// silence alone it would take five seconds.
const noticed = 4 * time.Second

// allDisconnected checks that every transfer ends in time, and not all of them well.
func allDisconnected(t *testing.T, xs []*nixl.Transfer, killed time.Time, within time.Duration) {
	t.Helper()
	lost := 0
	for _, x := range xs {
		err := nixltest.End(t, x)
		nixltest.WantStatus(t, err, nixl.ErrRemoteDisconnect, nixl.Success)
		if err != nil {
			lost++
		}
	}
	if took := time.Since(killed); took > within {
		t.Errorf("the last transfer ended %s after the peer died", took)
	}
	if lost == 0 {
		t.Error("no transfer was interrupted")
	}
}

// TestTwoProcesses writes and reads between processes, kills the target in the
// middle, and goes on with its successor under the same name.
func TestTwoProcesses(t *testing.T) {
	a, r, mem, _ := host(t, "parent", tcp.Options{})
	var stale *nixl.Transfer
	for round := range 2 {
		c := startChild(t, "target")
		if _, err := a.LoadRemote(c.offer.Blob); err != nil {
			t.Fatal(err)
		}
		if stale != nil && stale.Post() != nixl.ErrNotFound {
			t.Errorf("post to the predecessor = %s", stale.Status())
		}
		if !a.Known("child", c.offer.Incarnation) {
			t.Error("the child is not known")
		}
		half := uint64(childSize / 2)
		nixltest.Fill(mem[:half], uint64(round))
		local, back := []nixl.Desc{r.Desc(0, half)}, []nixl.Desc{r.Desc(half, half)}
		remote := []nixl.Desc{{Addr: c.offer.Desc.Addr + half, Len: half}}
		w := nixltest.New(t, a, nixl.Write, local, remote, "child", nixl.TransferOpts{Ticket: ticket(t, c.offer.Write), HasNotify: true})
		nixltest.WantStatus(t, nixltest.Do(t, w), nixl.Success)
		rd := nixltest.New(t, a, nixl.Read, back, remote, "child", nixl.TransferOpts{Ticket: ticket(t, c.offer.Read), HasNotify: true})
		nixltest.WantStatus(t, nixltest.Do(t, rd), nixl.Success)
		if !bytes.Equal(mem[:half], mem[half:]) {
			t.Fatal("what was read is not what was written")
		}
		if res, err := a.SelfTest(nixltest.Context(t), "child"); err != nil {
			t.Error(err)
		} else {
			t.Logf("self-test: %+v", res)
		}

		xs := busy(t, a, r, c)
		killed := time.Now()
		c.kill()
		allDisconnected(t, xs, killed, noticed)
		select {
		case d := <-a.PeerDowns():
			if d.Peer != "child" || d.Incarnation != c.offer.Incarnation || d.Inbound || d.Cause == nil {
				t.Errorf("event = %+v", d)
			}
		case <-time.After(time.Minute):
			t.Fatal("no event")
		}
		stale = w
	}
}

// TestInitiatorDies kills a process that writes into this one: the access ends, the
// agent says so, and the memory is quiet after the ticket was revoked.
func TestInitiatorDies(t *testing.T) {
	b, _, mem, there := host(t, "parent", tcp.Options{})
	c := startChild(t, "initiator")
	if err := json.NewEncoder(c.stdin).Encode(there); err != nil {
		t.Fatal(err)
	}
	nixltest.Poll(t, "the child writes", func() bool { return b.Stats().InBytes > 2*childSize })
	killed := time.Now()
	c.kill()
	select {
	case d := <-b.PeerDowns():
		if d.Peer != "child" || d.Incarnation != c.offer.Incarnation || !d.Inbound || d.Cause == nil {
			t.Errorf("event = %+v", d)
		}
	case <-time.After(time.Minute):
		t.Fatal("no event")
	}
	if took := time.Since(killed); took > noticed {
		t.Errorf("noticed after %s", took)
	}
	if err := b.RevokeTicket(nixltest.Context(t), ticket(t, there.Write)); err != nil {
		t.Fatal(err)
	}
	if in, _ := b.InFlight(); in != 0 {
		t.Errorf("%d accesses are left", in)
	}
	before := bytes.Clone(mem)
	if !bytes.Equal(before, mem) {
		t.Error("memory changes after the revoke")
	}
}

// TestFrozenTarget stops the target's process without killing it: the kernel keeps
// its connections alive, so that only silence tells.
func TestFrozenTarget(t *testing.T) {
	const silence = time.Second
	a, r, _, _ := host(t, "parent", tcp.Options{SilenceTimeout: silence})
	c := startChild(t, "target")
	if _, err := a.LoadRemote(c.offer.Blob); err != nil {
		t.Fatal(err)
	}
	xs := busy(t, a, r, c)
	frozen := time.Now()
	if err := c.cmd.Process.Signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	allDisconnected(t, xs, frozen, 4*silence)
}
