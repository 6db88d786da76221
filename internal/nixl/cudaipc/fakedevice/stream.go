//go:build linux

package fakedevice

import (
	"errors"
	"fmt"
)

// stream is a row of copies.
type stream struct {
	device  int
	queue   []job
	begun   uint64 // copies put into it
	ended   uint64 // copies done
	running bool   // a goroutine does them
}

type job struct {
	dst, src []byte
	uses     []*allocation
}

// event marks a place in a stream.
type event struct {
	device int
	stream *stream // nil before it was recorded
	after  uint64  // copies
}

// StreamCreate makes a stream.
func (d *Driver) StreamCreate(device int) (uint64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.number()
	d.streams[n] = &stream{device: device}
	return n, nil
}

// StreamDestroy ends a stream whose copies must have ended.
func (d *Driver) StreamDestroy(device int, n uint64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.streams[n]
	if s == nil || s.device != device {
		return d.fault("no stream %d on device %d", n, device)
	}
	delete(d.streams, n)
	if s.ended < s.begun {
		return d.fault("stream %d is destroyed before its copies have ended", n)
	}
	return nil
}

// StreamSynchronize does what is in the stream.
func (d *Driver) StreamSynchronize(_ int, n uint64) error {
	d.mu.Lock()
	s := d.streams[n]
	if s == nil {
		defer d.mu.Unlock()
		return d.fault("no stream %d", n)
	}
	d.start(s)
	d.mu.Unlock()
	d.copies.Wait()
	return nil
}

// EventCreate makes an event.
func (d *Driver) EventCreate(device int) (uint64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.number()
	d.events[n] = &event{device: device}
	return n, nil
}

// EventDestroy forgets an event.
func (d *Driver) EventDestroy(device int, n uint64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if e := d.events[n]; e == nil || e.device != device {
		return d.fault("no event %d on device %d", n, device)
	}
	delete(d.events, n)
	return nil
}

// EventRecord puts the event behind what is in the stream.
func (d *Driver) EventRecord(_ int, n, sn uint64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	e, s := d.events[n], d.streams[sn]
	if e == nil || s == nil {
		return d.fault("event %d is recorded in stream %d, one of which is not there", n, sn)
	}
	e.stream, e.after = s, s.begun
	return nil
}

// EventQuery begins to do what the event is behind, and reports whether it is done.
func (d *Driver) EventQuery(_ int, n uint64) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.events[n]
	if e == nil || e.stream == nil {
		return false, d.fault("event %d was not recorded", n)
	}
	d.start(e.stream)
	return e.stream.ended >= e.after, nil
}

// start lets a goroutine do the copies of a stream.
func (d *Driver) start(s *stream) {
	if s.running || len(s.queue) == 0 {
		return
	}
	s.running = true
	d.copies.Go(func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		for len(s.queue) > 0 {
			j := s.queue[0]
			s.queue = s.queue[1:]
			d.mu.Unlock()
			copy(j.dst, j.src)
			d.mu.Lock()
			for _, m := range j.uses {
				m.pending--
			}
			s.ended++
		}
		s.running = false
	})
}

// MemcpyDtoDAsync copies between memories of devices.
func (d *Driver) MemcpyDtoDAsync(device int, dst, src uint64, n int64, stream uint64) error {
	return d.enqueue(device, stream, nil, nil, dst, src, n)
}

// MemcpyHtoDAsync copies from the host.
func (d *Driver) MemcpyHtoDAsync(device int, dst uint64, src []byte, stream uint64) error {
	return d.enqueue(device, stream, nil, src, dst, 0, int64(len(src)))
}

// MemcpyDtoHAsync copies to the host.
func (d *Driver) MemcpyDtoHAsync(device int, dst []byte, src uint64, stream uint64) error {
	return d.enqueue(device, stream, dst, nil, 0, src, int64(len(dst)))
}

// enqueue puts a copy into a stream; addresses of 0 stand for host memory.
func (d *Driver) enqueue(device int, sn uint64, hostDst, hostSrc []byte, dst, src uint64, n int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.broken {
		return errors.New("the device has fallen off the bus")
	}
	s := d.streams[sn]
	if s == nil || s.device != device {
		return d.fault("copy in stream %d of device %d, which is not there", sn, device)
	}
	j := job{dst: hostDst, src: hostSrc}
	for _, side := range []struct {
		address uint64
		bytes   *[]byte
	}{{dst, &j.dst}, {src, &j.src}} {
		if side.address == 0 {
			continue
		}
		m := d.at(side.address, n)
		if m == nil || m.gone {
			return d.fault("copy of %d bytes at %#x, which is %s", n, side.address, describe(m))
		}
		off := side.address - m.address
		*side.bytes = m.bytes[off : off+uint64(n)]
		j.uses = append(j.uses, m)
	}
	for _, m := range j.uses {
		m.pending++
	}
	switch {
	case dst == 0:
		d.done.DtoH++
	case src == 0:
		d.done.HtoD++
	default:
		d.done.DtoD++
	}
	s.queue = append(s.queue, j)
	s.begun++
	return nil
}

func describe(m *allocation) string {
	if m == nil {
		return "no memory"
	}
	return fmt.Sprintf("%s, freed or closed", m)
}
