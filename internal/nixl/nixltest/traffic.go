package nixltest

import (
	"testing"

	"github.com/dynctl/dynctl/internal/nixl"
)

// testTraffic compares what is counted by peer and transport with what was moved.
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
	for name, got := range p.b.Stats().Transports {
		t.Errorf("the target has posted nothing, and counts over %s %+v", name, got)
	}
}
