package device

import (
	"context"
	"fmt"
	"time"

	"github.com/dynctl/dynctl/internal/cuda/driver"
)

// Priority says whose kernels go first when both could run.
type Priority int

// Priorities: a decode step must not wait for prefill, and neither for transfers.
const (
	Urgent  Priority = -2 // decode
	Normal  Priority = -1 // prefill
	Patient Priority = 0  // transfers
)

// Stream is a queue of work on a device.
type Stream struct {
	d      *Device
	handle uint64
	end    uint64 // event of drain
}

// NewStream makes a stream, which lives until the scope is closed.
func (s *Scope) NewStream(p Priority) (*Stream, error) {
	d := s.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := s.usable(); err != nil {
		return nil, err
	}
	end, err := d.driver.EventCreate(d.index)
	if err != nil {
		return nil, fmt.Errorf("make a stream: %w", err)
	}
	h, err := d.driver.StreamCreateWithPriority(d.index, int(p))
	if err != nil {
		_ = d.driver.EventDestroy(d.index, end) // err says what is wrong
		return nil, fmt.Errorf("make a stream: %w", err)
	}
	stream := &Stream{d: d, handle: h, end: end}
	s.streams = append(s.streams, stream)
	return stream, nil
}

// Handle is the driver's name of the stream, for launches.
func (s *Stream) Handle() uint64 { return s.handle }

// Launch puts a kernel into the stream.
func (s *Stream) Launch(l *driver.Launch) error {
	return s.d.Check(s.d.driver.LaunchKernel(s.d.index, l, s.handle))
}

// Set fills memory of the device with a byte.
func (s *Stream) Set(dst Region, value byte) error {
	return s.d.Check(s.d.driver.MemsetD8Async(s.d.index, dst.Address, value, dst.Bytes, s.handle))
}

// Copy copies within the device; the sizes must be the same.
func (s *Stream) Copy(dst, src Region) error {
	if dst.Bytes != src.Bytes {
		return fmt.Errorf("%w: copy of %d bytes into %d", driver.ErrInvalid, src.Bytes, dst.Bytes)
	}
	return s.d.Check(s.d.driver.MemcpyDtoDAsync(s.d.index, dst.Address, src.Address, src.Bytes, s.handle))
}

// Upload copies pinned memory of the host to the device. It must not change before the
// copy has ended.
func (s *Stream) Upload(dst Region, src []byte) error {
	if dst.Bytes != int64(len(src)) {
		return fmt.Errorf("%w: copy of %d bytes into %d", driver.ErrInvalid, len(src), dst.Bytes)
	}
	return s.d.Check(s.d.driver.MemcpyHtoDAsync(s.d.index, dst.Address, src, s.handle))
}

// Download copies to pinned memory of the host, which must not be read before the copy
// has ended.
func (s *Stream) Download(dst []byte, src Region) error {
	if src.Bytes != int64(len(dst)) {
		return fmt.Errorf("%w: copy of %d bytes into %d", driver.ErrInvalid, src.Bytes, len(dst))
	}
	return s.d.Check(s.d.driver.MemcpyDtoHAsync(s.d.index, dst, src.Address, s.handle))
}

// Record puts an event behind what is in the stream.
func (s *Stream) Record(e *Event) error {
	return s.d.Check(s.d.driver.EventRecord(s.d.index, e.handle, s.handle))
}

// After has later work of the stream wait for what an event was last recorded behind.
func (s *Stream) After(e *Event) error {
	return s.d.Check(s.d.driver.StreamWaitEvent(s.d.index, s.handle, e.handle))
}

// drain waits until the stream is empty.
func (s *Stream) drain(ctx context.Context) error {
	if err := s.d.Check(s.d.driver.EventRecord(s.d.index, s.end, s.handle)); err != nil {
		return err
	}
	return (&Event{s.d, s.end}).Wait(ctx)
}

// Event marks a place in a stream. It can be recorded again and again.
type Event struct {
	d      *Device
	handle uint64
}

// NewEvent makes an event, which lives until the scope is closed.
func (s *Scope) NewEvent() (*Event, error) {
	d := s.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := s.usable(); err != nil {
		return nil, err
	}
	h, err := d.driver.EventCreate(d.index)
	if err != nil {
		return nil, fmt.Errorf("make an event: %w", err)
	}
	e := &Event{d: d, handle: h}
	s.events = append(s.events, e)
	return e, nil
}

// Done reports whether the work before the event has ended.
func (e *Event) Done() (bool, error) {
	done, err := e.d.driver.EventQuery(e.d.index, e.handle)
	return done, e.d.Check(err)
}

// WaitAll waits for events of several devices. The first that fails ends it, whatever the
// others wait for: work on a device may hang because another one is lost.
func WaitAll(ctx context.Context, events ...*Event) error {
	return poll(ctx, func() (bool, error) {
		all := true
		for _, e := range events {
			done, err := e.Done()
			if err != nil {
				return false, err
			}
			all = all && done
		}
		return all, nil
	})
}

// Wait waits for that, at most until ctx ends. A kernel that hangs cannot be ended: who
// gives up for good calls [Device.Abandon].
func (e *Event) Wait(ctx context.Context) error {
	begin := time.Now()
	err := poll(ctx, e.Done)
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("work on device %d has not ended after %s: %w", e.d.index, time.Since(begin).Round(time.Millisecond), err)
	}
	return err
}
