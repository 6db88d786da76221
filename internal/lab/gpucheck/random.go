package gpucheck

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/dynctl/dynctl/internal/cuda/device"
	"github.com/dynctl/dynctl/internal/cuda/driver"
	"github.com/dynctl/dynctl/internal/lab/cuda/kerneltest"
)

// random is memory of the device full of bf16 of a normal distribution, which weights,
// activations and KV are parts of: what multiplies zeros draws less power, and is faster.
type random struct{ all device.Region }

// Sizes of it: as large as it may be, and what the host makes by itself.
const (
	randomBytes = 6 << 30
	randomSeed  = 32 << 20
	// inputBytes of it, in the end, are for activations.
	inputBytes = 256 << 20
)

// randomMemory makes it once, and keeps it as long as the process.
func (r *rig) randomMemory(ctx context.Context) (*random, error) {
	if r.random != nil {
		return r.random, nil
	}
	size := int64(randomBytes)
	if r.spec.Small {
		size = 4 << 20
	} else if free, _, err := r.drv.MemGetInfo(r.dev.Index()); err == nil {
		size = min(size, free/3&^(1<<20-1))
	}
	a, err := r.dev.Arena(device.Workspace, size)
	if err != nil {
		return nil, err
	}
	if err := r.fillRandom(ctx, r.dev.Scope, a.All()); err != nil {
		return nil, err
	}
	r.random = &random{all: a.All()}
	return r.random, nil
}

// fillRandom fills a region: the host makes the first part, which the device repeats.
func (r *rig) fillRandom(ctx context.Context, s *device.Scope, all device.Region) error {
	have := min(all.Bytes, randomSeed)
	if r.spec.Small {
		have = min(all.Bytes, 64<<10)
	}
	pinned, err := s.Pinned(device.IO, have)
	if err != nil {
		return err
	}
	host, err := pinned.Take(have)
	if err != nil {
		return err
	}
	from := rand.New(rand.NewPCG(1, 2))
	for i := 0; i+2 <= len(host); i += 2 {
		binary.LittleEndian.PutUint16(host[i:], uint16(kerneltest.Round(from.NormFloat64())))
	}
	if err := r.stream.Upload(all.Slice(0, have), host); err != nil {
		return err
	}
	for have < all.Bytes {
		n := min(have, all.Bytes-have)
		if err := r.stream.Copy(all.Slice(have, n), all.Slice(0, n)); err != nil {
			return err
		}
		have += n
	}
	return r.settle(ctx)
}

// room returns the bytes for weights and KV.
func (m *random) room() int64 { return m.all.Bytes - min(inputBytes, m.all.Bytes/4) }

// input is memory for activations.
func (m *random) input(bytes int64) (uint64, error) {
	if have := m.all.Bytes - m.room(); bytes > have {
		return 0, fmt.Errorf("%w: %d bytes of activations, there are %d", driver.ErrOutOfMemory, bytes, have)
	}
	return m.all.Address + uint64(m.room()), nil
}

// weights is the i-th of matrices that lie one behind the other, over all there is: far
// more than caches hold.
func (m *random) weights(bytes int64, i int) (uint64, error) {
	n := m.room() / bytes
	if n < 1 {
		return 0, fmt.Errorf("%w: a matrix of %d bytes", driver.ErrOutOfMemory, bytes)
	}
	return m.all.Address + uint64(int64(i)%n*bytes), nil
}

// output allocates memory that is written.
func output(s *device.Scope, bytes int64) (uint64, error) {
	a, err := s.Arena(device.Workspace, bytes)
	if err != nil {
		return 0, err
	}
	return a.All().Address, nil
}

// int32s uploads numbers.
func (r *rig) int32s(ctx context.Context, s *device.Scope, v []int32) (uint64, error) {
	b := make([]byte, 0, 4*len(v))
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, uint32(x))
	}
	return r.upload(ctx, s, b)
}

// unfit makes a case that a device has no room for one that is left out.
func unfit(err error) error {
	if errors.Is(err, driver.ErrOutOfMemory) {
		return skipped("no room: " + err.Error())
	}
	return err
}
