package nixltest

import (
	"math/rand/v2"
	"testing"

	"github.com/dynctl/dynctl/internal/nixl"
)

// testIndices moves blocks that are selected by index between a dense pool and one
// whose blocks have gaps.
func testIndices(t *testing.T, e Env) {
	const count, size, stride = 256, 1 << 10, 1<<10 + 64
	a, b := e.Agent(t, "a"), e.Agent(t, "b")
	la, ma := e.Region(t, a, count*size)
	lb, mb := e.Region(t, b, count*stride)
	Load(t, a, b)
	Fill(ma, 5)
	local, err := a.PrepareLocal(la.Blocks(size))
	if err != nil {
		t.Fatal(err)
	}
	spaced := nixl.Run{First: Remote(t, a, b).Desc(0, size), Stride: stride, Count: count}
	remote, err := a.PrepareRemote("b", spaced)
	if err != nil {
		t.Fatal(err)
	}
	rnd := rand.New(rand.NewPCG(3, 3))
	wt, rt := Ticket(t, b, nixl.Write, lb.Desc(0, lb.Len())), Ticket(t, b, nixl.Read, lb.Desc(0, lb.Len()))
	pick := func(n int) (idx []int32) {
		for _, p := range rnd.Perm(count)[:n] {
			idx = append(idx, int32(p))
		}
		return idx
	}
	for _, n := range []int{1, 2, 17, count / 2} {
		from, to := pick(n), pick(n)
		x, err := a.MakeTransfer(nixl.Write, local, from, remote, to, nixl.TransferOpts{Ticket: wt})
		if err != nil {
			t.Fatal(err)
		}
		WantStatus(t, Do(t, x), nixl.Success)
		for i := range from {
			SameAt(t, b, mb[int(to[i])*stride:][:size], ma[int(from[i])*size:][:size])
		}
		want := append([]byte(nil), ma...)
		for _, i := range from {
			clear(ma[int(i)*size:][:size])
		}
		back, err := a.MakeTransfer(nixl.Read, local, from, remote, to, nixl.TransferOpts{Ticket: rt})
		if err != nil {
			t.Fatal(err)
		}
		WantStatus(t, Do(t, back), nixl.Success)
		Same(t, ma, want)
	}

	// Neighbors on both sides travel as one descriptor.
	dense, err := a.PrepareRemote("b", Remote(t, a, b).Blocks(size))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		remote *nixl.Prepared
		l, r   []int32
		descs  int
	}{
		{dense, []int32{0, 1, 2, 3}, []int32{10, 11, 12, 13}, 1},
		{dense, []int32{0, 1, 2, 3}, []int32{10, 11, 14, 15}, 2},
		{dense, []int32{3, 2, 1, 0}, []int32{13, 12, 11, 10}, 4},
		{remote, []int32{0, 1, 2, 3}, []int32{10, 11, 12, 13}, 4},
	} {
		x, err := a.MakeTransfer(nixl.Write, local, c.l, c.remote, c.r, nixl.TransferOpts{Ticket: wt})
		if err != nil {
			t.Fatal(err)
		}
		WantStatus(t, Do(t, x), nixl.Success)
		if tele, err := x.Telemetry(); err != nil || tele.Descs != c.descs || tele.Bytes != uint64(len(c.l))*size {
			t.Errorf("blocks %v to %v: %+v, %v", c.l, c.r, tele, err)
		}
	}
}

// testManyRegions uses 10,000 regions in one transfer and in one list.
func testManyRegions(t *testing.T, e Env) {
	const count, size = 10_000, 64
	a := e.Agent(t, "a")
	b := e.Agent(t, "b")
	_, ma := e.Region(t, a, count*size)
	lb, mb := e.Region(t, b, count*size)
	Load(t, a, b)
	Fill(ma, 9)
	pieces := make([]nixl.Run, count)
	for i := range pieces {
		r, err := a.Register(Heap(ma[i*size:][:size]), nixl.DRAM)
		if err != nil {
			t.Fatal(err)
		}
		pieces[i] = r.Blocks(size)
	}
	local, err := a.PrepareLocal(pieces...)
	if err != nil {
		t.Fatal(err)
	}
	remote, err := a.PrepareRemote("b", Remote(t, a, b).Blocks(size))
	if err != nil {
		t.Fatal(err)
	}
	order := rand.New(rand.NewPCG(1, 2)).Perm(count)
	from, to := make([]int32, count), make([]int32, count)
	for i, p := range order {
		from[i], to[i] = int32(i), int32(p)
	}
	x, err := a.MakeTransfer(nixl.Write, local, from, remote, to, nixl.TransferOpts{Ticket: Ticket(t, b, nixl.Write, lb.Desc(0, lb.Len()))})
	if err != nil {
		t.Fatal(err)
	}
	WantStatus(t, Do(t, x), nixl.Success)
	for i, p := range order {
		SameAt(t, b, mb[p*size:][:size], ma[i*size:][:size])
	}
	if n := len(a.Metadata()); n > nixl.MaxMetadata {
		t.Errorf("metadata of %d bytes", n)
	}
	other := e.Agent(t, "c")
	if _, err := other.LoadRemote(a.Metadata()); err != nil && !e.Arenas { // heap memory cannot be shared
		t.Errorf("metadata of %d regions: %v", count+1, err)
	}
}
