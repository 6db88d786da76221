package gpucheck

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"time"

	"github.com/dynctl/dynctl/internal/cuda/device"
	"github.com/dynctl/dynctl/internal/cuda/driver"
)

func ipcCases() []Case { return []Case{{Name: "copy", run: checkSharing}} }

// sharedBytes is a whole number of what the driver allocates in.
const sharedBytes = 8 << 20

// peerSpec is the task of another process with memory that this one has allocated.
type peerSpec struct {
	Handle []byte
	Bytes  int64
}

// What the memory holds: what the owner writes, and what the peer does then.
const (
	ownersByte = 0x5a
	peersByte  = 0xa6
)

// checkSharing has another process map memory of this one, find in it what this one wrote,
// and write something else.
func checkSharing(ctx context.Context, r *rig) (f finding, err error) {
	err = r.scoped(ctx, func(s *device.Scope) error {
		a, err := s.Arena(device.KV, sharedBytes)
		if err != nil {
			return err
		}
		if err := errors.Join(r.stream.Set(a.All(), ownersByte), r.settle(ctx)); err != nil {
			return err
		}
		handle, err := r.drv.IpcGetMemHandle(r.dev.Index(), a.All().Address)
		if err := r.dev.Check(err); err != nil {
			return err
		}
		begin := time.Now()
		if err := r.peer(ctx, peerSpec{handle[:], sharedBytes}); err != nil {
			return fmt.Errorf("the other process: %w", err)
		}
		f.also = map[string]float64{"peer_ms": milliseconds(begin)}
		return holds(ctx, r, s, a.All(), peersByte)
	})
	return f, err
}

// holds checks that all bytes of a region are the same one.
func holds(ctx context.Context, r *rig, s *device.Scope, region device.Region, want byte) error {
	pinned, err := s.Pinned(device.IO, region.Bytes)
	if err != nil {
		return err
	}
	got, err := pinned.Take(region.Bytes)
	if err != nil {
		return err
	}
	if err := errors.Join(r.stream.Download(got, region), r.settle(ctx)); err != nil {
		return err
	}
	if n := bytes.Count(got, []byte{want}); n != len(got) {
		return fmt.Errorf("%d of %d bytes are %#x", n, len(got), want)
	}
	return nil
}

// peer has a process of its own do it. Pretended drivers are strangers to each other in
// one process, as processes are.
func (r *rig) peer(ctx context.Context, p peerSpec) error {
	s := r.spec
	s.Peer, s.Cases, s.Sources = &p, nil, ""
	if s.Pretended {
		return p.run(ctx, s, openDriver)
	}
	if len(s.Self) == 0 {
		return skipped("it is not known how to start another process")
	}
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*s.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.Self[0], s.Self[1:]...)
	cmd.Stdin, cmd.WaitDelay = bytes.NewReader(text), time.Second
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, bytes.TrimSpace(said))
	}
	return nil
}

// run is the other process.
func (p *peerSpec) run(ctx context.Context, s spec, open func(s spec) (driver.Driver, error)) error {
	r, err := newRig(ctx, s, open)
	if err != nil {
		return err
	}
	return errors.Join(p.visit(ctx, r), r.close(ctx))
}

func (p *peerSpec) visit(ctx context.Context, r *rig) error {
	if len(p.Handle) != driver.HandleBytes {
		return fmt.Errorf("%w: a handle of %d bytes", driver.ErrInvalid, len(p.Handle))
	}
	address, err := r.drv.IpcOpenMemHandle(r.dev.Index(), [driver.HandleBytes]byte(p.Handle))
	if err := r.dev.Check(err); err != nil {
		return err
	}
	region := device.Region{Address: address, Bytes: p.Bytes}
	err = r.scoped(ctx, func(s *device.Scope) error {
		own, err := s.Arena(device.Workspace, p.Bytes)
		if err != nil {
			return err
		}
		if err := errors.Join(r.stream.Copy(own.All(), region), r.settle(ctx)); err != nil {
			return err
		}
		if err := holds(ctx, r, s, own.All(), ownersByte); err != nil {
			return err
		}
		return errors.Join(r.stream.Set(region, peersByte), r.settle(ctx))
	})
	if r.dev.Err() != nil {
		return err
	}
	return errors.Join(err, r.dev.Check(r.drv.IpcCloseMemHandle(r.dev.Index(), address)))
}
