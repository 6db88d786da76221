package device_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cuda/device"
	"github.com/dynctl/dynctl/internal/cuda/driver"
	"github.com/dynctl/dynctl/internal/lab/cuda/fake"
)

// openPeers opens all devices of a pretended driver, of which the last has no peers.
func openPeers(t *testing.T, n int) (*fake.Driver, []*device.Device) {
	t.Helper()
	props := make([]driver.Properties, n)
	for i := range props {
		props[i] = driver.Properties{Name: "Fake H200", Major: 9, MemoryBytes: 1 << 20}
	}
	f := fake.New(fake.Options{Devices: props, NoPeers: []int{n - 1}})
	var all []*device.Device
	for i := range n {
		d, err := device.Open(f, i)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, d)
	}
	t.Cleanup(func() {
		for _, d := range all {
			if err := d.Close(context.Background()); err != nil {
				t.Error(err)
			}
		}
		_ = f.Close() // of a lost device something is left
	})
	return f, all
}

// Memory goes from device to device, also where none reaches the other, and who waits for
// several devices sees the end of all.
func TestPeers(t *testing.T) {
	f, all := openPeers(t, 3)
	for _, c := range []struct {
		a, b int
		want bool
	}{{0, 1, true}, {1, 0, true}, {0, 0, true}, {0, 2, false}, {2, 1, false}} {
		if got, err := all[c.a].ReachPeer(all[c.b]); got != c.want || err != nil {
			t.Errorf("device %d reaches %d: %t, %v", c.a, c.b, got, err)
		}
	}
	const n = 256
	var regions []device.Region
	var streams []*device.Stream
	var events []*device.Event
	for _, d := range all {
		arena, err := d.Arena(device.Workspace, n)
		if err != nil {
			t.Fatal(err)
		}
		stream, err := d.NewStream(device.Normal)
		if err != nil {
			t.Fatal(err)
		}
		event, err := d.NewEvent()
		if err != nil {
			t.Fatal(err)
		}
		regions, streams, events = append(regions, arena.All()), append(streams, stream), append(events, event)
	}
	for i := range all { // from each to the next
		var err error
		if i == 0 {
			err = streams[0].Set(regions[0], 7)
		} else {
			err = errors.Join(streams[i].After(events[i-1]), streams[i].CopyFrom(regions[i], all[i-1], regions[i-1]))
		}
		if err := errors.Join(err, streams[i].Record(events[i])); err != nil {
			t.Fatal(err)
		}
	}
	if err := device.WaitAll(t.Context(), events...); err != nil {
		t.Fatal(err)
	}
	for i, r := range regions {
		if !bytes.Equal(f.Bytes(r.Address, n), bytes.Repeat([]byte{7}, n)) {
			t.Errorf("device %d has not got the bytes", i)
		}
	}
	if err := streams[0].CopyFrom(regions[0], all[1], regions[1].Slice(0, 16)); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("CopyFrom() of another size = %v", err)
	}
	if err := f.Faults(); err != nil {
		t.Error(err)
	}
}

// A lost device ends the wait for others, which might never end.
func TestWaitAllOfALostDevice(t *testing.T) {
	f, all := openPeers(t, 2)
	s := &slow{Driver: f}
	stuck, err := device.Open(s, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		s.ends = true
		if err := stuck.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	var events []*device.Event
	for _, d := range []*device.Device{stuck, all[1]} {
		e, err := d.NewEvent()
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, e)
	}
	f.Lose(1, driver.UncorrectableECC)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := device.WaitAll(ctx, events...); !errors.Is(err, device.ErrLost) {
		t.Errorf("WaitAll() = %v", err)
	}
}
