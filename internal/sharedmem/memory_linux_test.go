package sharedmem

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestMemory(t *testing.T) {
	const size = 3*4096 + 5
	m, err := New("test", size)
	if err != nil {
		t.Fatal(err)
	}
	fd, ok := m.SharedFD()
	if !ok {
		t.Skip("this system cannot share memory")
	}
	if len(m.Bytes()) != size {
		t.Fatalf("%d bytes", len(m.Bytes()))
	}
	if err := unix.Ftruncate(fd, 4096); err == nil {
		t.Error("the memory can be cut off under its users")
	}
	other, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	m.Bytes()[size-1] = 7
	if other[size-1] != 7 {
		t.Error("a second mapping does not see what is written")
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	if other[size-1] != 7 {
		t.Error("a second mapping lost the pages")
	}
	if err := unix.Munmap(other); err != nil {
		t.Error(err)
	}
	if err := m.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	if err := unix.Fstat(fd, &unix.Stat_t{}); err == nil {
		t.Error("the descriptor is still open")
	}
}

func TestBadSizes(t *testing.T) {
	for _, n := range []int{0, -1, int(^uint(0) >> 1)} {
		if _, err := New("test", n); err == nil {
			t.Errorf("%d bytes were allocated", n)
		}
	}
}
