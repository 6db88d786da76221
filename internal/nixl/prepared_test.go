package nixl_test

import (
	"math"
	"testing"

	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/nixltest"
	"github.com/dynctl/dynctl/internal/patience"
)

func TestPrepareErrors(t *testing.T) {
	e := both()
	a, b := e.Agent(t, "a"), e.Agent(t, "b")
	la, _ := nixltest.Region(t, a, 4096)
	lb, _ := nixltest.Region(t, b, 4096)
	nixltest.Load(t, a, b)
	block := la.Desc(0, 64)
	for _, c := range []struct {
		name string
		runs []nixl.Run
		want nixl.Status
	}{
		{"nothing", nil, nixl.ErrInvalidParam},
		{"empty blocks", []nixl.Run{la.Blocks(0)}, nixl.ErrInvalidParam},
		{"blocks larger than the region", []nixl.Run{la.Blocks(4097)}, nixl.ErrInvalidParam},
		{"overlapping blocks", []nixl.Run{{First: block, Stride: 63, Count: 2}}, nixl.ErrInvalidParam},
		{"wraps around", []nixl.Run{{First: block, Stride: math.MaxUint64 / 2, Count: 3}}, nixl.ErrInvalidParam},
		{"too many blocks", []nixl.Run{{First: la.Desc(0, 1), Stride: 1, Count: math.MaxInt32}, {First: la.Desc(0, 1), Stride: 1, Count: 1}}, nixl.ErrNotFound},
		{"behind the region", []nixl.Run{{First: block, Stride: 64, Count: 65}}, nixl.ErrNotFound},
		{"memory of another agent", []nixl.Run{lb.Blocks(64)}, nixl.ErrNotFound},
	} {
		if _, err := a.PrepareLocal(c.runs...); nixl.StatusOf(err) != c.want {
			t.Errorf("local, %s: %v", c.name, err)
		}
	}
	if _, err := a.PrepareRemote("c", lb.Blocks(64)); nixl.StatusOf(err) != nixl.ErrNotFound {
		t.Errorf("unknown peer: %v", err)
	}
	if _, err := a.PrepareRemote("b", la.Blocks(64)); nixl.StatusOf(err) != nixl.ErrNotFound {
		t.Errorf("own memory as the peer's: %v", err)
	}

	local, err := a.PrepareLocal(la.Blocks(64))
	if err != nil {
		t.Fatal(err)
	}
	long, err := a.PrepareLocal(la.Blocks(65))
	if err != nil {
		t.Fatal(err)
	}
	remote, err := a.PrepareRemote("b", lb.Blocks(64))
	if err != nil {
		t.Fatal(err)
	}
	other, err := b.PrepareLocal(lb.Blocks(64))
	if err != nil {
		t.Fatal(err)
	}
	if local.Len() != 64 || long.Len() != 63 {
		t.Errorf("blocks: %d and %d", local.Len(), long.Len())
	}
	if _, ok := local.Desc(64); ok {
		t.Error("there is a block behind the last one")
	}
	for _, c := range []struct {
		name       string
		l, r       *nixl.Prepared
		lidx, ridx []int32
	}{
		{"no lists", nil, nil, []int32{0}, []int32{0}},
		{"remote list as the local one", remote, remote, []int32{0}, []int32{0}},
		{"local list as the remote one", local, local, []int32{0}, []int32{0}},
		{"list of another agent", other, remote, []int32{0}, []int32{0}},
		{"no indices", local, remote, nil, nil},
		{"unequal selections", local, remote, []int32{0, 1}, []int32{0}},
		{"unequal blocks", long, remote, []int32{0}, []int32{0}},
		{"negative index", local, remote, []int32{0}, []int32{-1}},
		{"index behind the end", local, remote, []int32{64}, []int32{0}},
	} {
		if _, err := a.MakeTransfer(nixl.Write, c.l, c.lidx, c.r, c.ridx, nixl.TransferOpts{}); nixl.StatusOf(err) != nixl.ErrInvalidParam {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if err := a.Invalidate("b"); err != nil {
		t.Fatal(err)
	}
	nixltest.Load(t, a, b)
	if _, err := a.MakeTransfer(nixl.Write, local, []int32{0}, remote, []int32{0}, nixl.TransferOpts{}); nixl.StatusOf(err) != nixl.ErrNotFound {
		t.Errorf("list of an earlier generation: %v", err)
	}
}

// The allocations of a transfer do not grow with its blocks.
func TestMakeTransferAllocations(t *testing.T) {
	e := both()
	a, b := e.Agent(t, "a"), e.Agent(t, "b")
	la, _ := nixltest.Region(t, a, 1<<20)
	lb, _ := nixltest.Region(t, b, 1<<20)
	nixltest.Load(t, a, b)
	local, err := a.PrepareLocal(la.Blocks(1 << 10))
	if err != nil {
		t.Fatal(err)
	}
	remote, err := a.PrepareRemote("b", lb.Blocks(1<<10))
	if err != nil {
		t.Fatal(err)
	}
	allocs := func(n int) float64 {
		l, r := make([]int32, n), make([]int32, n)
		for i := range l {
			l[i], r[i] = int32(2*i), int32(i)
		}
		return patience.Allocs(20, func() {
			if _, err := a.MakeTransfer(nixl.Write, local, l, remote, r, nixl.TransferOpts{}); err != nil {
				t.Error(err)
			}
		})
	}
	if few, many := allocs(2), allocs(500); many > few {
		t.Errorf("%v allocations for 2 blocks, %v for 500", few, many)
	}
}
