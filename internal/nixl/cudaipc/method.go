//go:build linux

package cudaipc

import (
	"bytes"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/fenced"
)

// New returns a transport for one agent, to be put into its Config before those of host
// memory. Without devices it reaches no peer, and its errors wrap why, which must not be nil
// then.
func New(p *fenced.Pool, ds *Devices, why error, o fenced.Options) nixl.Transport {
	return p.Transport(&method{devices: ds, why: why}, o)
}

// method opens device memory of peers and maps their host memory.
type method struct {
	devices *Devices // nil without
	why     error
}

func (m *method) Name() string { return Name }

// The offer is the process's id, then the UUIDs of its devices.
const uuidBytes = 16

func (m *method) Offer() ([]byte, error) {
	if m.devices == nil {
		return nil, fmt.Errorf("no CUDA devices: %w", m.why)
	}
	b := bytes.Clone(m.devices.id[:])
	for _, u := range m.devices.uuids {
		b = append(b, u[:]...)
	}
	return b, nil
}

func (m *method) Reach(r nixl.Remote, offer []byte) (string, error) {
	n := len(offer)/uuidBytes - 1
	switch {
	case n < 1 || len(offer)%uuidBytes != 0:
		return "", fmt.Errorf("offer of %d bytes: %w", len(offer), nixl.ErrMismatch)
	case bytes.Equal(offer[:uuidBytes], m.devices.id[:]):
		return "", fmt.Errorf("peer is in this process, where its memory handles cannot be opened: %w", nixl.ErrNotSupported)
	case r.Private != nil:
		return "", fmt.Errorf("region %q of the peer is private to its process: %w", *r.Private, nixl.ErrMismatch)
	}
	for _, d := range r.Devices {
		if d >= uint64(n) {
			return "", fmt.Errorf("memory on device %d of a peer with %d: %w", d, n, nixl.ErrMismatch)
		}
		uuid := [uuidBytes]byte(offer[(d+1)*uuidBytes:])
		if _, ok := m.devices.find(uuid); !ok {
			return "", fmt.Errorf("device %d of the peer, GPU-%x, is not visible to this process (CUDA_VISIBLE_DEVICES): %w", d, uuid, nixl.ErrNotSupported)
		}
	}
	return "another process of this host, device memory by CUDA IPC", nil
}

func (m *method) Direct(d nixl.DeviceMemory) bool {
	a, ok := d.(*Arena)
	return ok && a.devices == m.devices
}

// A note about device memory is the device's UUID and the handle.
const noteBytes = uuidBytes + HandleBytes

func (m *method) Hand(s nixl.Share) (fenced.Handed, error) {
	if s.Device == nil {
		if s.FD < 0 {
			return fenced.Handed{}, fmt.Errorf("region %q is private to its process: %w", s.Label, nixl.ErrNotSupported)
		}
		return fenced.Handed{FD: s.FD}, nil
	}
	a, ok := s.Device.(*Arena)
	if !ok {
		return fenced.Handed{}, fmt.Errorf("region %q is %T: %w", s.Label, s.Device, nixl.ErrNotSupported)
	}
	returned, err := a.lend()
	if err != nil {
		return fenced.Handed{}, fmt.Errorf("region %q: %w", s.Label, err)
	}
	uuid := m.devices.uuids[a.device]
	return fenced.Handed{Note: append(uuid[:], a.handle[:]...), Returned: returned}, nil
}

func (m *method) Take(_ fenced.Owner, base nixl.Desc, _ uint64, fd int, note []byte) (fenced.Memory, error) {
	switch {
	case len(note) == noteBytes:
		return m.open(base, note), nil
	case len(note) > 0:
		return nil, fmt.Errorf("%d bytes about a region: %w", len(note), nixl.ErrMismatch)
	case fd <= 0:
		return nil, fmt.Errorf("it came without its descriptor: %w", nixl.ErrMismatch)
	}
	mem, err := fenced.MapShared(fd, base.Len)
	if err != nil {
		return nil, err
	}
	return &mapped{m.devices, mem}, nil
}

// open opens device memory of the peer. Where that fails, so do the copies, and nothing
// else between the two.
func (m *method) open(base nixl.Desc, note []byte) fenced.Memory {
	uuid := [uuidBytes]byte(note)
	device, ok := m.devices.find(uuid)
	if !ok {
		return unopened{fmt.Errorf("device GPU-%x of the peer is not visible to this process: %w", uuid, nixl.ErrNotSupported)}
	}
	k := openKey{device, [HandleBytes]byte(note[uuidBytes:])}
	o, err := m.devices.open(k)
	if err != nil {
		return unopened{err}
	}
	return &remote{devices: m.devices, key: k, address: o.address, size: base.Len}
}

// mapped is host memory of the peer in the memory of this process.
type mapped struct {
	devices *Devices
	mem     []byte
}

func (m *mapped) Close() { _ = unix.Munmap(m.mem) }

func (m *mapped) PieceBytes() uint64 { return hostPiece }
