package driver

import (
	"errors"
	"time"
	"unsafe"

	"github.com/dynctl/dynctl/internal/dynlib"
)

const (
	streamNonBlocking  = 1
	eventDefault       = 0
	eventDisableTiming = 2
)

// StreamCreate implements Driver.
func (d *CUDA) StreamCreate(device int) (uint64, error) {
	return d.StreamCreateWithPriority(device, 0)
}

// StreamCreateWithPriority implements Driver.
func (d *CUDA) StreamCreateWithPriority(device, priority int) (stream uint64, err error) {
	if err := d.enter(device); err != nil {
		return 0, err
	}
	defer leave()
	return stream, d.call("cuStreamCreateWithPriority", device,
		dynlib.Call(d.fn.streamCreate, uintptr(unsafe.Pointer(&stream)), streamNonBlocking, uintptr(int32(priority))))
}

// StreamDestroy implements Driver.
func (d *CUDA) StreamDestroy(device int, stream uint64) error {
	return d.simple("cuStreamDestroy", device, d.fn.streamDestroy, "stream", stream)
}

// StreamSynchronize implements Driver.
func (d *CUDA) StreamSynchronize(device int, stream uint64) error {
	return d.simple("cuStreamSynchronize", device, d.fn.streamSynchronize, "stream", stream)
}

// StreamWaitEvent implements Driver.
func (d *CUDA) StreamWaitEvent(device int, stream, event uint64) error {
	if err := errors.Join(handle("stream", stream), handle("event", event)); err != nil {
		return err
	}
	if err := d.enter(device); err != nil {
		return err
	}
	defer leave()
	return d.call("cuStreamWaitEvent", device, dynlib.Call(d.fn.streamWaitEvent, uintptr(stream), uintptr(event), 0))
}

// EventCreate implements Driver.
func (d *CUDA) EventCreate(device int) (uint64, error) {
	return d.createEvent(device, eventDisableTiming)
}

// EventCreateWithTiming implements Driver.
func (d *CUDA) EventCreateWithTiming(device int) (uint64, error) {
	return d.createEvent(device, eventDefault)
}

func (d *CUDA) createEvent(device int, flags uintptr) (event uint64, err error) {
	if err := d.enter(device); err != nil {
		return 0, err
	}
	defer leave()
	return event, d.call("cuEventCreate", device, dynlib.Call(d.fn.eventCreate, uintptr(unsafe.Pointer(&event)), flags))
}

// EventDestroy implements Driver.
func (d *CUDA) EventDestroy(device int, event uint64) error {
	return d.simple("cuEventDestroy", device, d.fn.eventDestroy, "event", event)
}

// EventRecord implements Driver.
func (d *CUDA) EventRecord(device int, event, stream uint64) error {
	if err := errors.Join(handle("stream", stream), handle("event", event)); err != nil {
		return err
	}
	if err := d.enter(device); err != nil {
		return err
	}
	defer leave()
	return d.call("cuEventRecord", device, dynlib.Call(d.fn.eventRecord, uintptr(event), uintptr(stream)))
}

// EventQuery implements Driver.
func (d *CUDA) EventQuery(device int, event uint64) (done bool, err error) {
	err = d.simple("cuEventQuery", device, d.fn.eventQuery, "event", event)
	var e *Error
	if errors.As(err, &e) && e.Result == NotReady {
		return false, nil
	}
	return err == nil, err
}

// EventSynchronize implements Driver.
func (d *CUDA) EventSynchronize(device int, event uint64) error {
	return d.simple("cuEventSynchronize", device, d.fn.eventSynchronize, "event", event)
}

// EventElapsedTime implements Driver.
func (d *CUDA) EventElapsedTime(device int, start, end uint64) (time.Duration, error) {
	if err := errors.Join(handle("event", start), handle("event", end)); err != nil {
		return 0, err
	}
	if err := d.enter(device); err != nil {
		return 0, err
	}
	defer leave()
	var milliseconds float32
	err := d.call("cuEventElapsedTime", device, dynlib.Call(d.fn.eventElapsedTime, uintptr(unsafe.Pointer(&milliseconds)), uintptr(start), uintptr(end)))
	return time.Duration(float64(milliseconds) * float64(time.Millisecond)), err
}
