//go:build linux

package fenced

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/sharedmem"
)

// fence guards the target's memory: an initiator enters it before each access. It
// lies in memory that both have mapped. The word is
//
//	generation << 32 | shut << 31 | number of holders
//
// The target opens it with a generation no earlier access had, and shuts it. The
// initiator enters and leaves. See DESIGN.md.
type fence struct {
	word  atomic.Uint64
	moved atomic.Uint64 // bytes copied so far, by the initiator
	_     [fenceBytes - 16]byte
}

const (
	fenceBytes = 64 // a cache line: fences do not slow each other down
	fenceShut  = 1 << 31
	holders    = fenceShut - 1
)

// open lets holders of the generation in. Target only, while the fence is quiet.
func (f *fence) open(generation uint32) {
	f.moved.Store(0)
	f.word.Store(uint64(generation) << 32)
}

// shut refuses new accesses, and reports whether none is inside. Target only.
func (f *fence) shut() (quiet bool) { return f.word.Or(fenceShut)&holders == 0 }

// quiet reports whether the fence is shut and no access is inside. Target only.
func (f *fence) quiet() bool {
	w := f.word.Load()
	return w&fenceShut != 0 && w&holders == 0
}

// enter makes the caller a holder, unless the fence is shut or of another
// generation. Memory of the target is touched by holders only.
func (f *fence) enter(generation uint32) bool {
	for {
		w := f.word.Load()
		if uint32(w>>32) != generation || w&fenceShut != 0 || w&holders == holders {
			return false
		}
		if f.word.CompareAndSwap(w, w+1) {
			return true
		}
	}
}

// leave ends what enter began, after n bytes were copied.
func (f *fence) leave(n uint64) {
	f.moved.Add(n)
	f.word.Add(^uint64(0))
}

// fences holds the fences of one session, in memory that the target makes and the
// initiator maps. The last of them is not for accesses: the initiator is inside of it
// once for every region that it has taken.
type fences struct {
	page  []byte
	close func() error
}

// regions is the fence that an initiator enters with the generation regionsOpen before
// it takes a region, and leaves when it has closed it. The target shuts it when the
// session has ended.
func (fs *fences) regions() *fence { return fs.at(fs.len()) }

const regionsOpen = 1

func newFences(n int) (*fences, int, error) {
	m, err := sharedmem.New("nixl-fences", (n+1)*fenceBytes)
	if err != nil {
		return nil, -1, err
	}
	fd, ok := m.SharedFD()
	if !ok {
		return nil, -1, errors.Join(fmt.Errorf("memory cannot be shared: %w", nixl.ErrNotSupported), m.Close())
	}
	fs := &fences{page: m.Bytes(), close: m.Close}
	for i := range n {
		fs.at(i).shut()
	}
	fs.regions().open(regionsOpen)
	return fs, fd, nil
}

// mapFences maps those of a target.
func mapFences(fd, n int) (*fences, error) {
	page, err := MapShared(fd, uint64((n+1)*fenceBytes))
	if err != nil {
		return nil, fmt.Errorf("map fences: %w", err)
	}
	return &fences{page: page, close: func() error { return unix.Munmap(page) }}, nil
}

// len is the number of fences for accesses.
func (fs *fences) len() int { return len(fs.page)/fenceBytes - 1 }

func (fs *fences) at(i int) *fence { return (*fence)(unsafe.Pointer(&fs.page[i*fenceBytes])) }

// MapShared maps size bytes of a peer's memory, after a check that no access to
// them can fault. The caller unmaps them.
func MapShared(fd int, size uint64) ([]byte, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, os.NewSyscallError("fstat", err)
	}
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	switch {
	case err != nil:
		return nil, fmt.Errorf("memory of the peer is no memfd: %w: %w", err, errProtocol)
	case seals&unix.F_SEAL_SHRINK == 0 || size == 0 || size > 1<<46 || st.Size < int64(size):
		return nil, fmt.Errorf("memory of the peer has %d bytes and seals %#x, want %d bytes: %w", st.Size, seals, size, errProtocol)
	}
	mem, err := unix.Mmap(fd, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	return mem, nil
}
