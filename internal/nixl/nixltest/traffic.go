package nixltest

import (
	"testing"

	"github.com/dynctl/dynctl/internal/nixl"
)

// testTraffic compares what is counted by peer and transport with what was moved, and
// the estimate of a transfer's cost with the self-test it comes from.
func testTraffic(t *testing.T, e Env) {
	const size = 1 << 20
	p := newPair(t, e, size)
	write := p.all(t, nixl.Write, nixl.TransferOpts{Ticket: p.ticket(t, nixl.Write)})
	half := New(t, p.a, nixl.Read, []nixl.Desc{p.la.Desc(0, 100), p.la.Desc(200, 50)}, []nixl.Desc{p.rb.Desc(0, 100), p.rb.Desc(300, 50)}, "b",
		nixl.TransferOpts{Ticket: p.ticket(t, nixl.Read)})
	refused := p.all(t, nixl.Write, nixl.TransferOpts{})
	for _, x := range []*nixl.Transfer{write, write, half} {
		WantStatus(t, Do(t, x), nixl.Success)
	}
	WantStatus(t, Do(t, refused), nixl.ErrNotAllowed)

	peer := p.a.Peers()[0]
	check := func(where string, got nixl.Traffic) {
		t.Helper()
		if got.TxBytes != 2*size || got.RxBytes != 150 || got.Transfers != 3 || got.Descs != 4 || len(got.Errors) != 1 || got.Errors[nixl.ErrNotAllowed] != 1 {
			t.Errorf("%s: %+v", where, got)
		}
		if got.XferTime.Count() != 3 || got.XferTime.Sum <= 0 || got.PostTime.Count() != 4 || got.PostTime.Sum <= 0 {
			t.Errorf("%s: times %+v and %+v", where, got.XferTime, got.PostTime)
		}
	}
	check("peer", peer.Traffic)
	check("transport", p.a.Stats().Transports[peer.Transport])
	if all := p.a.Traffic(); len(all) != 1 || all[0].Peer != "b" || all[0].Transport != peer.Transport {
		t.Errorf("Traffic() = %+v", all)
	} else {
		check("path", all[0].Traffic)
	}
	if got := p.b.Traffic(); len(got) != 0 {
		t.Errorf("the target has posted nothing, and counts %+v", got)
	}

	if _, err := write.EstimateCost(); nixl.StatusOf(err) != nixl.ErrNoTelemetry {
		t.Errorf("cost before a self-test: %v", err)
	}
	res, err := p.a.SelfTest(Context(t), "b")
	if err != nil {
		t.Fatal(err)
	}
	long, err := write.EstimateCost()
	if err != nil {
		t.Fatal(err)
	}
	short, err := half.EstimateCost()
	if err != nil {
		t.Fatal(err)
	}
	if want := res.RTT.Seconds() + size/1e9/res.WriteGBps; long.Duration.Seconds() < 0.99*want || long.Duration.Seconds() > 1.01*want+1e-6 {
		t.Errorf("cost of %d bytes = %+v, self-test %+v", size, long, res)
	}
	if short.Duration < res.RTT || short.Margin < 0 || long.Margin < 0 || long.Method == "" {
		t.Errorf("costs = %+v and %+v, self-test %+v", short, long, res)
	}
	if err := p.a.Invalidate("b"); err != nil {
		t.Fatal(err)
	}
	if _, err := write.EstimateCost(); nixl.StatusOf(err) != nixl.ErrNotFound {
		t.Errorf("cost with a forgotten peer: %v", err)
	}
}
