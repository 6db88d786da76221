package nixltest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/nixl"
)

func testNotifyOrder(t *testing.T, e Env) {
	b := e.Agent(t, "b")
	senders := []*nixl.Agent{e.Agent(t, "a1"), e.Agent(t, "a2"), e.Agent(t, "a3")}
	const count = 200
	var wg sync.WaitGroup
	for _, a := range senders {
		Load(t, a, b)
		wg.Go(func() {
			for i := range uint32(count) {
				msg := binary.LittleEndian.AppendUint32(nil, i)
				if err := a.Notify(t.Context(), "b", append(msg, make([]byte, i*7)...)); err != nil {
					t.Errorf("notify %d: %v", i, err)
					return
				}
			}
		})
	}
	next := map[string]uint32{}
	for range count * len(senders) {
		n := Next(t, b)
		i := binary.LittleEndian.Uint32(n.Msg)
		if i != next[n.From] || len(n.Msg) != int(4+i*7) {
			t.Fatalf("from %s: message %d of %d bytes, expected message %d", n.From, i, len(n.Msg), next[n.From])
		}
		next[n.From]++
	}
	wg.Wait()
	NoMore(t, b)

	a := senders[0]
	if err := a.Notify(t.Context(), "nobody", nil); nixl.StatusOf(err) != nixl.ErrNotFound {
		t.Errorf("notify of an unknown peer: %v", err)
	}
	if err := a.Notify(t.Context(), "b", make([]byte, 1<<20)); nixl.StatusOf(err) != nixl.ErrInvalidParam {
		t.Errorf("notify of 1 MiB: %v", err)
	}
}

// testNotifyBackPressure fills the receiver and checks that senders wait, that
// nothing is lost, and that a transfer with a notification waits, too.
func testNotifyBackPressure(t *testing.T, e Env) {
	p := newPair(t, e, 4096, func(c *nixl.Config) { c.Limits.NotifyBytes = 8 << 10 })
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	sent := 0
	for {
		err := p.a.Notify(ctx, "b", binary.LittleEndian.AppendUint32(make([]byte, 0, 1000), uint32(sent))[:1000])
		if err != nil {
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("notify: %v", err)
			}
			break
		}
		if sent++; sent > 100 {
			t.Fatal("the sender never waits")
		}
	}
	x := p.all(t, nixl.Write, nixl.TransferOpts{Ticket: p.ticket(t, nixl.Write), Notify: []byte("last")})
	if st := x.Post(); st != nixl.InProgress {
		t.Errorf("status with a full receiver = %s", st)
	}
	for i := range sent {
		if n := Next(t, p.b); binary.LittleEndian.Uint32(n.Msg) != uint32(i) {
			t.Fatalf("message %d arrived as number %d", binary.LittleEndian.Uint32(n.Msg), i)
		}
	}
	WantStatus(t, End(t, x), nixl.Success)
	n := Next(t, p.b) // the message that was given up may have arrived, or not
	if len(n.Msg) == 1000 {
		n = Next(t, p.b)
	}
	if string(n.Msg) != "last" {
		t.Errorf("last message = %q", n.Msg)
	}
}

// testNotifyAfterData reads the memory as soon as the notification is there; the
// race detector complains if that is too early.
func testNotifyAfterData(t *testing.T, e Env) {
	const size = 3<<20/shrink + 4096
	for _, op := range []nixl.Op{nixl.Write, nixl.Read} {
		t.Run(op.String(), func(t *testing.T) {
			p := newPair(t, e, size)
			defer func() { _ = p.a.Close(); _ = p.b.Close() }()
			id := p.ticket(t, op)
			for i := range 12 {
				x := p.all(t, op, nixl.TransferOpts{Ticket: id, Notify: fmt.Append(nil, i)})
				src, dst := p.ma, p.mb
				if op == nixl.Read {
					src, dst = dst, src
				}
				Fill(src, uint64(i))
				p.b.Tickets()
				x.Post()
				if n := Next(t, p.b); string(n.Msg) != fmt.Sprint(i) {
					t.Fatalf("notification %d = %q", i, n.Msg)
				}
				if op == nixl.Write {
					SameAt(t, p.b, dst, src)
				} else {
					p.b.Tickets()
					Fill(src, uint64(i)+1000) // the source may be used for something else now
				}
				WantStatus(t, End(t, x), nixl.Success)
			}
		})
	}
}

// testNotifyEmpty sends messages without bytes: to a peer, behind a write, and to the
// sender itself.
func testNotifyEmpty(t *testing.T, e Env) {
	p := newPair(t, e, 4096)
	for _, msg := range [][]byte{nil, {}} {
		if err := p.a.Notify(Context(t), "b", msg); err != nil {
			t.Fatal(err)
		}
		if err := p.a.Notify(Context(t), "a", msg); err != nil {
			t.Fatal(err)
		}
	}
	WantStatus(t, Do(t, p.all(t, nixl.Write, nixl.TransferOpts{Ticket: p.ticket(t, nixl.Write), HasNotify: true})), nixl.Success)
	for range 3 {
		if n := Next(t, p.b); n.From != "a" || n.Msg == nil || len(n.Msg) != 0 {
			t.Errorf("notification = %+v", n)
		}
	}
	for range 2 {
		if n := Next(t, p.a); n.From != "a" || n.Msg == nil || len(n.Msg) != 0 {
			t.Errorf("notification to itself = %+v", n)
		}
	}
	NoMore(t, p.a)
	NoMore(t, p.b)
	_ = p.a.Close()
	if err := p.a.Notify(Context(t), "a", nil); nixl.StatusOf(err) != nixl.ErrRemoteDisconnect {
		t.Errorf("notify itself after Close: %v", err)
	}
}
