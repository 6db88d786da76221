package cudaipc

import (
	"errors"
	"fmt"
	"time"

	"github.com/dynctl/dynctl/internal/nixl"
)

// lane is a stream with an event to wait for its end, for one copy at a time.
type lane struct {
	driver        Queues
	device        int
	stream, event uint64
}

// lane takes an idle one or makes one. There are at most as many as goroutines copy.
func (ds *Devices) lane(device int) (*lane, error) {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	if ds.closed {
		return nil, fmt.Errorf("devices are closed: %w", nixl.ErrCanceled)
	}
	if n := len(ds.idle[device]); n > 0 {
		l := ds.idle[device][n-1]
		ds.idle[device] = ds.idle[device][:n-1]
		return l, nil
	}
	stream, err := ds.driver.StreamCreate(device)
	if err != nil {
		return nil, fmt.Errorf("create stream on device %d: %w: %w", device, err, nixl.ErrBackend)
	}
	event, err := ds.driver.EventCreate(device)
	if err != nil {
		return nil, fmt.Errorf("create event on device %d: %w: %w", device, errors.Join(err, ds.driver.StreamDestroy(device, stream)), nixl.ErrBackend)
	}
	return &lane{driver: ds.driver, device: device, stream: stream, event: event}, nil
}

func (l *lane) destroy() error {
	return errors.Join(l.driver.EventDestroy(l.device, l.event), l.driver.StreamDestroy(l.device, l.stream))
}

// copyFunc begins copy i on a lane.
type copyFunc func(l *lane, i int) (n uint64, err error)

// run begins the copies 0 to n-1 on a lane and returns when all that began have ended,
// also after an error: the device no longer accesses the memory. It waits as long as
// the device takes: until then the device may still access the memory.
func (ds *Devices) run(device, n int, begin copyFunc) (moved uint64, err error) {
	l, err := ds.lane(device)
	if err != nil {
		return 0, err
	}
	for i := 0; i < n && err == nil; i++ {
		var k uint64
		k, err = begin(l, i)
		moved += k
	}
	if ended := l.wait(); ended != nil || err != nil {
		err = fmt.Errorf("copy on device %d: %w: %w", device, errors.Join(err, ended), nixl.ErrBackend)
		return 0, errors.Join(err, l.destroy()) // not used again: its state is unknown
	}
	ds.mu.Lock()
	defer ds.mu.Unlock()
	if ds.closed {
		return moved, l.destroy()
	}
	ds.idle[device] = append(ds.idle[device], l)
	return moved, nil
}

// wait returns when what was begun on the lane has ended.
func (l *lane) wait() error {
	if err := l.driver.EventRecord(l.device, l.event, l.stream); err != nil {
		return errors.Join(err, l.driver.StreamSynchronize(l.device, l.stream))
	}
	const spin, longest = 50 * time.Microsecond, time.Millisecond
	began := time.Now()
	for pause := time.Microsecond; ; {
		done, err := l.driver.EventQuery(l.device, l.event)
		if err != nil {
			return errors.Join(err, l.driver.StreamSynchronize(l.device, l.stream))
		}
		if done {
			return nil
		}
		if time.Since(began) > spin {
			pause = min(2*pause, longest)
		}
		time.Sleep(pause)
	}
}
