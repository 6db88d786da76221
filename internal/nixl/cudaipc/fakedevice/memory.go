//go:build linux

package fakedevice

import (
	"encoding/binary"
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// allocation is memory of a device, this process's or another's.
type allocation struct {
	device  int
	address uint64
	bytes   []byte // of the memory, then the page of its openers
	fd      int    // -1 if another process owns it
	handle  [64]byte
	gone    bool
	pending int // copies that name it
}

const pageBytes = 4096

func (m *allocation) size() uint64 { return uint64(len(m.bytes) - pageBytes) }

func (m *allocation) String() string {
	kind := "memory"
	if m.fd < 0 {
		kind = "memory of a peer"
	}
	return fmt.Sprintf("%s at %#x of device %d", kind, m.address, m.device)
}

// openers are the processes that have the memory open: their ids, 0 where there is none.
func (m *allocation) openers() []atomic.Int32 {
	return unsafe.Slice((*atomic.Int32)(unsafe.Pointer(&m.bytes[m.size()])), pageBytes/4)
}

func (m *allocation) unmap() {
	_ = unix.Munmap(m.bytes)
	if m.fd >= 0 {
		_ = unix.Close(m.fd)
	}
	m.gone = true
}

// MemAlloc allocates whole pages.
func (d *Driver) MemAlloc(device int, size int64) (uint64, error) {
	if size <= 0 || size%pageBytes != 0 {
		return 0, fmt.Errorf("fake device: allocate %d bytes", size)
	}
	fd, err := unix.MemfdCreate("fake-device", unix.MFD_CLOEXEC)
	if err != nil {
		return 0, os.NewSyscallError("memfd_create", err)
	}
	err = unix.Ftruncate(fd, size+pageBytes)
	var mem []byte
	if err == nil {
		mem, err = unix.Mmap(fd, 0, int(size)+pageBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
	if err != nil {
		_ = unix.Close(fd)
		return 0, os.NewSyscallError("mmap", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	m := d.add(&allocation{device: device, bytes: mem, fd: fd})
	h := binary.LittleEndian.AppendUint64(nil, d.id)
	h = binary.LittleEndian.AppendUint64(h, uint64(os.Getpid()))
	h = binary.LittleEndian.AppendUint64(h, uint64(fd))
	h = binary.LittleEndian.AppendUint64(h, uint64(size))
	h = append(h, d.devices[device])
	copy(m.handle[:], h)
	return m.address, nil
}

// add gives memory its address.
func (d *Driver) add(m *allocation) *allocation {
	m.address = (d.next + pageBytes) &^ (pageBytes - 1)
	d.next = m.address + uint64(len(m.bytes))
	d.mem = append(d.mem, m)
	return m
}

// at returns the allocation around n bytes, dead or alive.
func (d *Driver) at(address uint64, n int64) *allocation {
	for _, m := range d.mem {
		if address >= m.address && n >= 0 && address+uint64(n) <= m.address+m.size() {
			return m
		}
	}
	return nil
}

// Bytes shows memory to a test, which must know that nothing copies.
func (d *Driver) Bytes(address uint64) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	m := d.at(address, 0)
	return m.bytes[:m.size():m.size()]
}

// Discard ends memory of this process as the end of the process would, whoever has it
// open.
func (d *Driver) Discard(address uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.at(address, 0).unmap()
}

// MemFree frees memory that no process has open.
func (d *Driver) MemFree(device int, address uint64) error { return d.drop(device, address, true) }

// IpcCloseMemHandle closes memory of another process.
func (d *Driver) IpcCloseMemHandle(device int, address uint64) error {
	return d.drop(device, address, false)
}

func (d *Driver) drop(device int, address uint64, own bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	m := d.at(address, 0)
	switch {
	case m == nil || m.address != address || m.device != device || own != (m.fd >= 0):
		return d.fault("no memory at %#x of device %d to free", address, device)
	case m.gone:
		return d.fault("%s is freed again", m)
	case m.pending > 0:
		return d.fault("%s is freed with %d copies under way", m, m.pending)
	}
	for i := range m.openers() {
		o := &m.openers()[i]
		pid := o.Load()
		switch {
		case !own && pid == int32(os.Getpid()) && o.CompareAndSwap(pid, 0):
			m.unmap()
			return nil
		case own && pid != 0 && unix.Kill(int(pid), 0) == nil:
			return d.fault("%s is freed while process %d has it open", m, pid)
		}
	}
	m.unmap()
	return nil
}

// IpcGetMemHandle names an allocation.
func (d *Driver) IpcGetMemHandle(device int, address uint64) ([64]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	m := d.at(address, 0)
	if m == nil || m.gone || m.address != address || m.device != device || m.fd < 0 {
		return [64]byte{}, d.fault("handle of %#x on device %d, which is no allocation", address, device)
	}
	return m.handle, nil
}

// IpcOpenMemHandle maps an allocation of another process.
func (d *Driver) IpcOpenMemHandle(device int, handle [64]byte) (uint64, error) {
	u := func(i int) uint64 { return binary.LittleEndian.Uint64(handle[8*i:]) }
	d.mu.Lock()
	defer d.mu.Unlock()
	if u(0) == d.id && u(1) == uint64(os.Getpid()) {
		return 0, d.fault("a handle is opened in the process that made it")
	}
	if device < 0 || device >= len(d.devices) || d.devices[device] != handle[32] {
		return 0, d.fault("a handle of another device is opened on device %d", device)
	}
	for _, m := range d.mem {
		if !m.gone && m.handle == handle {
			return 0, d.fault("a handle is opened twice")
		}
	}
	fd, err := unix.Open(fmt.Sprintf("/proc/%d/fd/%d", u(1), u(2)), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, os.NewSyscallError("open", err) // the owner is gone
	}
	mem, err := unix.Mmap(fd, 0, int(u(3))+pageBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	_ = unix.Close(fd)
	if err != nil {
		return 0, os.NewSyscallError("mmap", err)
	}
	m := d.add(&allocation{device: device, bytes: mem, fd: -1, handle: handle})
	for i := range m.openers() {
		if m.openers()[i].CompareAndSwap(0, int32(os.Getpid())) {
			return m.address, nil
		}
	}
	return 0, d.fault("%s is opened by too many", m)
}
