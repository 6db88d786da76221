package device_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/cuda/device"
	"github.com/dynctl/dynctl/internal/cuda/driver"
)

// A scope ends with its user: what it had is free again, and the device goes on.
func TestScope(t *testing.T) {
	r := newRig(t)
	before, err := r.Budget(1)
	r.ok(err)
	s, err := r.NewScope()
	r.ok(err)
	a, err := s.Arena(device.Weights, 1<<20)
	r.ok(err)
	_, err = s.Pinned(device.IO, 4096)
	r.ok(err)
	stream, err := s.NewStream(device.Normal)
	r.ok(err)
	_, err = s.NewEvent()
	r.ok(err)
	s.Seal()
	if _, err := s.Arena(device.KV, 1); !errors.Is(err, device.ErrSealed) {
		t.Errorf("Arena() of a sealed scope = %v", err)
	}
	if _, err := r.Arena(device.Workspace, 64); err != nil {
		t.Errorf("Arena() of the device = %v", err)
	}
	if u := r.Usage(); len(u) != 5 || u[3].Purpose != device.Weights {
		t.Errorf("Usage() = %+v", u)
	}
	r.ok(stream.Set(a.All(), 1), s.Close(r.ctx), s.Close(r.ctx))
	after, err := r.Budget(1)
	r.ok(err)
	if before.Free-after.Free != 64 || len(r.Usage()) != 3 {
		t.Errorf("%d bytes are left in use, %+v", before.Free-after.Free, r.Usage())
	}
	if _, err := s.NewStream(device.Normal); !errors.Is(err, device.ErrClosed) {
		t.Errorf("NewStream() of a closed scope = %v", err)
	}
	r.ok(r.decode.Set(r.take(64), 2))
	// What is left open is closed with the device.
	left, err := r.NewScope()
	r.ok(err)
	_, err = left.Arena(device.KV, 100)
	r.ok(err, r.close())
}

func TestGraphs(t *testing.T) {
	r := newRig(t)
	a, b := r.take(4096), r.take(4096)
	g, err := r.Capture(r.decode, func() error { return errors.Join(r.decode.Upload(a, r.host), r.decode.Copy(b, a)) })
	r.ok(err)
	out, err := r.Pinned(device.IO, 4096)
	r.ok(err)
	got, err := out.Take(4096)
	r.ok(err)
	for round := range byte(3) {
		for i := range r.host {
			r.host[i] = byte(i) * (round + 3)
		}
		r.ok(r.decode.Replay(g), r.decode.Download(got, b), r.decode.Record(r.event), r.event.Wait(r.ctx))
		if !bytes.Equal(got, r.host) {
			t.Errorf("round %d: other bytes came back", round)
		}
	}
	r.ok(r.close())
}

// A capture that fails leaves the stream as it was.
func TestCaptureFails(t *testing.T) {
	r := newRig(t)
	a := r.take(64)
	own := errors.New("no")
	if _, err := r.Capture(r.decode, func() error { return errors.Join(r.decode.Set(a, 1), own) }); !errors.Is(err, own) {
		t.Errorf("Capture() = %v", err)
	}
	if _, err := r.Capture(r.decode, func() error { return r.decode.Set(device.Region{Address: 5, Bytes: 1}, 1) }); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("Capture() = %v", err)
	}
	if _, err := r.Capture(r.decode, func() error {
		_, err := r.Arena(device.Workspace, 64)
		return err
	}); !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), "a graph is recorded") {
		t.Errorf("Capture() of an allocation = %v", err)
	}
	g, err := r.Capture(r.decode, func() error { return r.decode.Set(a, 3) })
	r.ok(err, r.decode.Replay(g), r.decode.Record(r.event), r.event.Wait(r.ctx))
	if got := r.fake.Bytes(a.Address, 64); !bytes.Equal(got, bytes.Repeat([]byte{3}, 64)) {
		t.Errorf("memory is %x", got)
	}
	if err := r.close(); err == nil {
		t.Error("the driver does not tell of the fault")
	}
}
