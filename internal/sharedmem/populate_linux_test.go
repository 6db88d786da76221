package sharedmem

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func TestPopulate(t *testing.T) {
	page := os.Getpagesize()
	m, err := New("test", 10*page+5)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	fd, ok := m.SharedFD()
	if !ok {
		t.Skip("this system cannot share memory")
	}
	taken := func() int { // pages
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			t.Fatal(err)
		}
		return int(st.Blocks) * 512 / page
	}
	m.Bytes()[3*page] = 7
	if n := taken(); n != 1 {
		t.Skipf("one byte takes %d pages here", n)
	}
	for _, tc := range []struct{ off, n, want int }{
		{0, 0, 1},
		{page - 1, 2, 3},          // pages 0 and 1
		{2 * page, 2 * page, 4},   // 2, and 3, which is there
		{8 * page, 2*page + 5, 7}, // the last three
		{0, 10*page + 5, 11},      // all
		{10*page + 5, 0, 11},      // nothing behind the end
		{5 * page, 5 * page, 11},  // again
		{10 * page, 1, 11},        // and again
	} {
		switch err := m.Populate(tc.off, tc.n); {
		case errors.Is(err, unix.EINVAL):
			t.Skip("this kernel cannot populate memory: ", err)
		case err != nil:
			t.Fatal(err)
		}
		if n := taken(); n != tc.want {
			t.Errorf("%d+%d: %d pages are taken, want %d", tc.off, tc.n, n, tc.want)
		}
	}
	for i, b := range m.Bytes() {
		if want := byte(0); b != want && i != 3*page || i == 3*page && b != 7 {
			t.Fatalf("byte %d is %d", i, b)
		}
	}
	for _, bad := range [][2]int{{-1, 1}, {0, -1}, {0, 10*page + 6}, {10*page + 6, 0}, {1, int(^uint(0) >> 1)}} {
		if err := m.Populate(bad[0], bad[1]); err == nil {
			t.Errorf("%d+%d is in range", bad[0], bad[1])
		}
	}
}
