package nixl

import (
	"slices"
	"testing"
)

func TestPartialMetadataErrors(t *testing.T) {
	a, err := NewAgent(Config{Name: "a"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = a.Close() }()
	gone, err := a.Register(heap(64), DRAM, WithLabel("x"))
	if err != nil {
		t.Fatal(err)
	}
	if err := gone.Deregister(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		spec PartialSpec
		want Status
	}{
		{"nothing", PartialSpec{}, ErrInvalidParam},
		{"unknown label", PartialSpec{Labels: []string{"y"}, Connection: true}, ErrNotFound},
		{"label of a region that is gone", PartialSpec{Labels: []string{"x"}}, ErrNotFound},
		{"region that is gone", PartialSpec{Regions: []*Region{gone}}, ErrNotFound},
		{"no region", PartialSpec{Regions: []*Region{nil}}, ErrNotFound},
	} {
		if _, err := a.PartialMetadata(c.spec); StatusOf(err) != c.want {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// heap is so many bytes of the Go heap.
type heap int

func (h heap) Bytes() []byte { return make([]byte, h) }

func TestMergeRegions(t *testing.T) {
	r := func(label string, addr, n uint64) RemoteRegion {
		return RemoteRegion{Label: label, Base: Desc{Addr: addr, Len: n}}
	}
	known := []RemoteRegion{r("a", 0, 10), r("b", 100, 10)}
	gpu := RemoteRegion{Label: "g", Type: VRAM, Base: Desc{Addr: 5, Len: 10, DevID: 1}}
	for _, c := range []struct {
		name string
		more []RemoteRegion
		n    int
		want Status
	}{
		{"nothing", nil, 2, Success},
		{"one more", []RemoteRegion{r("c", 50, 10)}, 3, Success},
		{"the same again", []RemoteRegion{r("b", 100, 10), r("a", 0, 10)}, 2, Success},
		{"next to a known one", []RemoteRegion{r("c", 10, 10)}, 3, Success},
		{"same addresses of a device", []RemoteRegion{gpu}, 3, Success},
		{"other label", []RemoteRegion{r("c", 0, 10)}, 0, ErrNotAllowed},
		{"longer", []RemoteRegion{r("a", 0, 11)}, 0, ErrNotAllowed},
		{"overlapping", []RemoteRegion{r("c", 105, 1)}, 0, ErrNotAllowed},
		{"overlapping among themselves", []RemoteRegion{r("c", 50, 10), r("d", 59, 10)}, 0, ErrNotAllowed},
	} {
		before := slices.Clone(known)
		got, err := mergeRegions(known, c.more)
		if StatusOf(err) != c.want || len(got) != c.n {
			t.Errorf("%s: %d regions, %v", c.name, len(got), err)
		}
		if !slices.Equal(known, before) {
			t.Fatalf("%s: what was known has changed to %v", c.name, known)
		}
	}
	if got, err := mergeRegions(nil, nil); len(got) != 0 || err != nil {
		t.Errorf("nothing of nothing: %v, %v", got, err)
	}
}
