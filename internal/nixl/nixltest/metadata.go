package nixltest

import (
	"bytes"
	"testing"

	"github.com/dynctl/dynctl/internal/nixl"
)

// testPartialMetadata makes regions known one after the other, as their owners
// publish them under labels of their own.
func testPartialMetadata(t *testing.T, e Env) {
	const size = 4096
	a, b := e.Agent(t, "a"), e.Agent(t, "b")
	la, ma := e.Region(t, a, size)
	one, first := e.Region(t, b, size)
	blob := func(s nixl.PartialSpec) []byte {
		t.Helper()
		p, err := b.PartialMetadata(s)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	load := func(p []byte, want nixl.Status) {
		t.Helper()
		if _, err := a.LoadRemote(p); nixl.StatusOf(err) != want {
			t.Fatalf("LoadRemote(): %v, want %s", err, want)
		}
	}
	id := Ticket(t, b, nixl.Write, one.Desc(0, size))
	write := func(r *nixl.Region, id nixl.TicketID) error {
		x, err := a.NewTransfer(nixl.Write, []nixl.Desc{la.Desc(0, size)}, []nixl.Desc{r.Desc(0, size)}, "b", nixl.TransferOpts{Ticket: id})
		if err != nil {
			return err
		}
		return Do(t, x)
	}

	load(blob(nixl.PartialSpec{Regions: []*nixl.Region{one}}), nixl.ErrNotFound) // whose?
	load(blob(nixl.PartialSpec{Connection: true}), nixl.Success)
	if err := a.Notify(Context(t), "b", []byte("hi")); err != nil {
		t.Errorf("notify over bare connection data: %v", err)
	}
	Next(t, b)
	WantStatus(t, write(one, id), nixl.ErrNotFound)
	load(blob(nixl.PartialSpec{Labels: []string{"kv"}}), nixl.Success)
	Fill(ma, 1)
	WantStatus(t, write(one, id), nixl.Success)
	SameAt(t, b, first, ma)

	two, second := e.Region(t, b, size)
	WantStatus(t, write(two, id), nixl.ErrNotFound)
	both := blob(nixl.PartialSpec{Regions: []*nixl.Region{two, one}, Connection: true})
	load(both, nixl.Success) // one of them is known
	load(both, nixl.Success)
	if rs, err := a.RemoteRegions("b"); err != nil || len(rs) != 2 {
		t.Errorf("regions = %+v, %v", rs, err)
	}
	Fill(ma, 2)
	WantStatus(t, write(two, Ticket(t, b, nixl.Write, two.Desc(0, size))), nixl.Success)
	SameAt(t, b, second, ma)
	x := New(t, a, nixl.Write, []nixl.Desc{la.Desc(0, size)}, []nixl.Desc{one.Desc(0, size)}, "b", nixl.TransferOpts{Ticket: id})

	// The whole blob says what there is, no more.
	if err := b.RevokeTicket(Context(t), id); err != nil {
		t.Fatal(err)
	}
	if err := one.Deregister(); err != nil {
		t.Fatal(err)
	}
	load(b.Metadata(), nixl.Success)
	if rs, err := a.RemoteRegions("b"); err != nil || len(rs) != 1 || rs[0].Base != two.Desc(0, size) {
		t.Errorf("regions = %+v, %v", rs, err)
	}
	WantStatus(t, Do(t, x), nixl.ErrNotAllowed) // the target decides

	old := blob(nixl.PartialSpec{Labels: []string{"kv"}})
	_ = b.Close()
	restarted := e.Agent(t, "b")
	fresh, third := e.Region(t, restarted, size)
	whole, err := restarted.PartialMetadata(nixl.PartialSpec{Labels: []string{"kv"}, Connection: true})
	if err != nil {
		t.Fatal(err)
	}
	load(whole, nixl.Success)
	load(old, nixl.ErrMismatch) // incarnations do not mix
	if rs, err := a.RemoteRegions("b"); err != nil || len(rs) != 1 || rs[0].Base != fresh.Desc(0, size) {
		t.Errorf("regions = %+v, %v", rs, err)
	}
	WantStatus(t, write(fresh, Ticket(t, restarted, nixl.Write, fresh.Desc(0, size))), nixl.Success)
	SameAt(t, restarted, third, bytes.Clone(ma))
}
