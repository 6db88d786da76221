//go:build linux

package shm

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/fenced"
)

// Name is the name of this transport.
const Name = "shm"

// New returns a transport for one agent, to be put into its Config.
func New(p *fenced.Pool, o fenced.Options) nixl.Transport { return p.Transport(mapped{}, o) }

// mapped touches memory of peers by mapping it.
type mapped struct{}

func (mapped) Name() string { return Name }

func (mapped) Offer() ([]byte, error) { return nil, nil }

func (mapped) Reach(r nixl.Remote, _ []byte) (string, error) {
	if r.Private != nil {
		return "", fmt.Errorf("region %q of the peer is private to its process: %w", *r.Private, nixl.ErrMismatch)
	}
	return "another process of this host, shared memory", nil
}

func (mapped) Hand(s nixl.Share) (fenced.Handed, error) {
	if s.FD < 0 {
		return fenced.Handed{}, fmt.Errorf("region %q is private to its process: %w", s.Label, nixl.ErrNotSupported)
	}
	return fenced.Handed{FD: s.FD}, nil
}

func (mapped) Take(_ fenced.Owner, base nixl.Desc, _ uint64, fd int, _ []byte) (fenced.Memory, error) {
	if fd <= 0 {
		return nil, fmt.Errorf("it came without its descriptor: %w", nixl.ErrMismatch)
	}
	mem, err := fenced.MapShared(fd, base.Len)
	if err != nil {
		return nil, err
	}
	return &mapping{mem}, nil
}

// mapping is a region of a peer in the memory of this process.
type mapping struct{ mem []byte }

func (m *mapping) Copy(op nixl.Op, local [][]byte, at []uint64) (n uint64, err error) {
	for i, l := range local {
		theirs := m.mem[at[i] : at[i]+uint64(len(l))]
		if op == nixl.Write {
			copy(theirs, l)
		} else {
			copy(l, theirs)
		}
		n += uint64(len(l))
	}
	return n, nil
}

func (m *mapping) Close() { _ = unix.Munmap(m.mem) }
