package nixltest

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/patience"
)

func testRandomLists(t *testing.T, e Env) {
	const seed = 7
	rnd := rand.New(rand.NewPCG(seed, seed))
	a, b := e.Agent(t, "a"), e.Agent(t, "b")
	for _, c := range []struct {
		n    int
		size uint64
	}{{1, 1}, {1000, 40}, {8, 4 << 10}, {64, 32 << 10}, {24 / shrink, 1_000_000}, {3, 2<<20/shrink + 17}, {1, 17 << 20 / shrink}} {
		t.Run(fmt.Sprintf("%dx%d", c.n, c.size), func(t *testing.T) {
			la, ma := e.Region(t, a, c.n*int(c.size))
			lb, mb := e.Region(t, b, c.n*int(c.size))
			defer func() {
				if err := la.Deregister(); err != nil {
					t.Error(err)
				}
				if err := lb.Deregister(); err != nil {
					t.Error(err)
				}
			}()
			Load(t, a, b)
			Fill(ma, seed)
			local, from := Blocks(rnd, la.Desc, c.n, c.size)
			remote, to := Blocks(rnd, Remote(t, a, b).Desc, c.n, c.size)
			wt := Ticket(t, b, nixl.Write, lb.Desc(0, lb.Len()))
			x := New(t, a, nixl.Write, local, remote, "b", nixl.TransferOpts{Ticket: wt, Notify: []byte("there")})
			WantStatus(t, Do(t, x), nixl.Success)
			if n := Next(t, b); n.From != "a" || string(n.Msg) != "there" {
				t.Errorf("notification = %+v", n)
			}
			for i := range from {
				f, g := from[i]*int(c.size), to[i]*int(c.size)
				SameAt(t, b, mb[g:g+int(c.size)], ma[f:f+int(c.size)])
			}
			if err := b.RevokeTicket(Context(t), wt); err != nil {
				t.Fatal(err)
			}

			rt := Ticket(t, b, nixl.Read, lb.Desc(0, lb.Len()))
			want := append([]byte(nil), ma...)
			clear(ma)
			x = New(t, a, nixl.Read, local, remote, "b", nixl.TransferOpts{Ticket: rt, HasNotify: true})
			WantStatus(t, Do(t, x), nixl.Success)
			if n := Next(t, b); n.From != "a" || n.Msg == nil || len(n.Msg) != 0 {
				t.Errorf("notification = %+v", n)
			}
			Same(t, ma, want)
			tele, err := x.Telemetry()
			if err != nil || tele.Bytes != uint64(c.n)*c.size || tele.Descs == 0 || tele.XferDuration <= 0 {
				t.Errorf("Telemetry() = %+v, %v", tele, err)
			}
			if err := b.RevokeTicket(Context(t), rt); err != nil {
				t.Fatal(err)
			}
		})
	}
	NoMore(t, b)
	// The last one may be counted here after it has arrived there.
	patience.Until(t, "all notifications are counted", func() bool { return a.Stats().NotifySent >= 14 })
	s, p := a.Stats(), b.Stats()
	if s.TxBytes == 0 || s.TxBytes != s.RxBytes || s.TxBytes != p.InBytes || p.InBytes != p.OutBytes {
		t.Errorf("bytes: initiator %+v, target %+v", s, p)
	}
	if s.Succeeded != 14 || len(s.Errors) != 0 || len(p.Refused) != 0 || p.NotifyReceived != 14 || s.NotifySent != 14 {
		t.Errorf("counters: initiator %+v, target %+v", s, p)
	}
}

// pair is two agents with one region each, a ticket for all of b's, and a loaded.
type pair struct {
	a, b   *nixl.Agent
	la, lb *nixl.Region
	ma, mb []byte
	rb     nixl.RemoteRegion
}

func newPair(t *testing.T, e Env, size int, change ...func(*nixl.Config)) *pair {
	p := &pair{a: e.Agent(t, "a", change...), b: e.Agent(t, "b", change...)}
	p.la, p.ma = e.Region(t, p.a, size)
	p.lb, p.mb = e.Region(t, p.b, size)
	Load(t, p.a, p.b)
	p.rb = Remote(t, p.a, p.b)
	Fill(p.ma, 1)
	return p
}

// all prepares a transfer of the whole regions.
func (p *pair) all(t testing.TB, op nixl.Op, o nixl.TransferOpts) *nixl.Transfer {
	t.Helper()
	return New(t, p.a, op, []nixl.Desc{p.la.Desc(0, p.la.Len())}, []nixl.Desc{p.rb.Base}, "b", o)
}

// ticket opens a ticket for all of b's memory.
func (p *pair) ticket(t testing.TB, op nixl.Op) nixl.TicketID {
	t.Helper()
	return Ticket(t, p.b, op, p.lb.Desc(0, p.lb.Len()))
}

func testRepost(t *testing.T, e Env) {
	p := newPair(t, e, 16<<10)
	x := p.all(t, nixl.Write, nixl.TransferOpts{Ticket: p.ticket(t, nixl.Write)})
	if st := x.Status(); st != nixl.ErrNotPosted {
		t.Errorf("status before the first post = %s", st)
	}
	if _, err := x.Telemetry(); nixl.StatusOf(err) != nixl.ErrNoTelemetry {
		t.Errorf("telemetry before the first post: %v", err)
	}
	for i := range 1000 / shrink {
		Fill(p.ma, uint64(i))
		WantStatus(t, Do(t, x), nixl.Success)
		SameAt(t, p.b, p.mb, p.ma)
	}
	if st := x.Release(); st != nixl.Success {
		t.Errorf("Release() = %s", st)
	}
	if st := x.Post(); st != nixl.ErrInvalidParam {
		t.Errorf("post after release = %s", st)
	}
}

func testNotifyPerPost(t *testing.T, e Env) {
	p := newPair(t, e, 1<<20/shrink)
	x := p.all(t, nixl.Write, nixl.TransferOpts{Ticket: p.ticket(t, nixl.Write), HasNotify: true})
	const posts = 20
	for range posts {
		WantStatus(t, Do(t, x), nixl.Success)
	}
	for range posts {
		Next(t, p.b)
	}
	NoMore(t, p.b)
}

func testConcurrent(t *testing.T, e Env) {
	const workers, posts, size = 4, 25, 300 << 10 / shrink
	p := newPair(t, e, workers*size)
	wt, rt := p.ticket(t, nixl.Write), p.ticket(t, nixl.Read)
	var wg sync.WaitGroup
	for w := range workers {
		off := uint64(w * size)
		mine := func(op nixl.Op, id nixl.TicketID) *nixl.Transfer {
			return New(t, p.a, op, []nixl.Desc{p.la.Desc(off, size)}, []nixl.Desc{p.rb.Desc(off, size)}, "b",
				nixl.TransferOpts{Ticket: id, HasNotify: true})
		}
		wr, rd := mine(nixl.Write, wt), mine(nixl.Read, rt)
		mem := p.ma[off : off+size]
		wg.Go(func() {
			want := make([]byte, size)
			for i := range posts {
				Fill(want, uint64(w*1000+i))
				copy(mem, want)
				for _, x := range []*nixl.Transfer{wr, rd} {
					x.Post()
					if err := x.Wait(t.Context()); err != nil {
						t.Errorf("worker %d, post %d: %v", w, i, err)
						return
					}
					if x == wr {
						clear(mem)
					}
				}
				if string(mem) != string(want) {
					t.Errorf("worker %d, post %d: bytes differ", w, i)
					return
				}
				if err := p.a.Notify(t.Context(), "b", nil); err != nil {
					t.Errorf("worker %d, notify %d: %v", w, i, err)
				}
			}
		})
	}
	for range workers * posts * 3 {
		Next(t, p.b)
	}
	wg.Wait()
	NoMore(t, p.b)
}

func testBothDirections(t *testing.T, e Env) {
	const size = 1 << 20 / shrink
	p := newPair(t, e, 2*size)
	Load(t, p.b, p.a)
	Fill(p.mb, 2)
	ra := Remote(t, p.b, p.a)
	there := New(t, p.a, nixl.Write, []nixl.Desc{p.la.Desc(0, size)}, []nixl.Desc{p.rb.Desc(0, size)}, "b",
		nixl.TransferOpts{Ticket: Ticket(t, p.b, nixl.Write, p.lb.Desc(0, size)), Notify: []byte("there")})
	back := New(t, p.b, nixl.Write, []nixl.Desc{p.lb.Desc(size, size)}, []nixl.Desc{ra.Desc(size, size)}, "a",
		nixl.TransferOpts{Ticket: Ticket(t, p.a, nixl.Write, p.la.Desc(size, size)), Notify: []byte("back")})
	for range 10 {
		there.Post()
		back.Post()
		WantStatus(t, End(t, there), nixl.Success)
		WantStatus(t, End(t, back), nixl.Success)
		Next(t, p.a)
		Next(t, p.b)
	}
	SameAt(t, p.b, p.mb, p.ma)
}

func testSelfTest(t *testing.T, e Env) {
	a, b, c := e.Agent(t, "a"), e.Agent(t, "b"), e.Agent(t, "c")
	Load(t, a, c)
	Load(t, b, c)
	var wg sync.WaitGroup
	for _, x := range []*nixl.Agent{a, b} {
		wg.Go(func() {
			res, err := x.SelfTest(Context(t), "c")
			if err != nil {
				t.Errorf("SelfTest(): %v", err)
				return
			}
			if res.WriteGBps <= 0 || res.ReadGBps <= 0 || res.RTT <= 0 || res.Transport == "" {
				t.Errorf("SelfTest() = %+v", res)
			}
		})
	}
	wg.Wait()
	Poll(t, "scratch memory is given back", func() bool { return c.Tickets() == 0 })
	if _, err := a.SelfTest(Context(t), "nobody"); nixl.StatusOf(err) != nixl.ErrNotFound {
		t.Errorf("SelfTest of an unknown peer: %v", err)
	}
}

func testCloseBusy(t *testing.T, e Env) {
	const count, size = 20, 1 << 20 / shrink
	p := newPair(t, e, count*size)
	wt := p.ticket(t, nixl.Write)
	var xs []*nixl.Transfer
	for i := range uint64(count) { // side by side: overlapping writes would be a race of their own
		x := New(t, p.a, nixl.Write, []nixl.Desc{p.la.Desc(i*size, size)}, []nixl.Desc{p.rb.Desc(i*size, size)}, "b",
			nixl.TransferOpts{Ticket: wt, HasNotify: true})
		x.Post()
		xs = append(xs, x)
	}
	start := time.Now()
	if err := p.a.Close(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took > limit/2 {
		t.Errorf("Close took %s", took)
	}
	for _, x := range xs {
		select {
		case <-x.Done():
		default:
			t.Fatal("a transfer is active after Close")
		}
		WantStatus(t, x.Err(), nixl.Success, nixl.ErrCanceled)
	}
	if err := p.a.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	if st := xs[0].Post(); st != nixl.ErrCanceled {
		t.Errorf("post after Close = %s", st)
	}
}
