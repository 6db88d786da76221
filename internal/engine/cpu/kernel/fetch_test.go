package kernel

import (
	"fmt"
	"testing"
	"unsafe"
)

// TestFetch checks that several calls bring the whole panel that follows, each an equal
// part of it, and that a single one goes as fast as it multiplies.
func TestFetch(t *testing.T) {
	const cols = 512
	panel := unsafe.Pointer(&aligned(64)[0])
	for _, ty := range append(quantizedTypes[:len(quantizedTypes):len(quantizedTypes)], struct {
		name string
		t    Type
	}{"bf16", BF16}) {
		size, turn, turns := PanelBytes(ty.t, cols), 4*Width, cols/2
		fetch := func(call, calls int) (uintptr, int) {
			c := CallBF16{Panel: panel, Cols: cols}
			c.Fetch(call, calls)
			return c.Ahead, c.Pace
		}
		if ty.t.Quantized() {
			turn = layouts[ty.t].turn
			turns = size / turn
			fetch = func(call, calls int) (uintptr, int) {
				c := BlockCall{Panel: panel, Blocks: cols / BlockSize}
				c.Fetch(ty.t, call, calls)
				return c.Ahead, c.Pace
			}
		}
		if turn*turns != size {
			t.Errorf("%s: %d turns of %d bytes are no panel of %d", ty.name, turns, turn, size)
		}
		if ahead, pace := fetch(0, 1); ahead != uintptr(panel)+pagesAhead || pace != turn {
			t.Errorf("%s: a single call begins %d bytes behind and goes on by %d", ty.name, ahead-uintptr(panel), pace)
		}
		for _, calls := range []int{2, 3, 7, 20} {
			what := fmt.Sprintf("%s, %d calls", ty.name, calls)
			next := uintptr(panel) + uintptr(size) // what has not been asked for
			for call := range calls {
				ahead, pace := fetch(call, calls)
				for range turns {
					if ahead > next {
						t.Fatalf("%s: call %d leaves out %d bytes", what, call, ahead-next)
					}
					next = max(next, ahead+uintptr(turn))
					ahead += uintptr(pace)
				}
			}
			if end := uintptr(panel) + uintptr(2*size); next < end || next > end+uintptr(2*turn+2*turns) {
				t.Errorf("%s: %d bytes beyond the next panel are brought", what, int(next)-int(end))
			}
		}
	}
}
