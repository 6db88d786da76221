package gpucheck

import (
	"bytes"
	"context"
	"fmt"

	"github.com/dynctl/dynctl/internal/cuda/device"
	"github.com/dynctl/dynctl/internal/cuda/driver"
	"github.com/dynctl/dynctl/internal/lab/cuda/kerneltest"
)

const (
	guardBytes = 4096 // around every operand
	guard      = 0xa5
	operandAt  = 256 // multiple of bytes at which operands begin
)

// image is the memory of a case as the host has it: operands between guards, which the
// operation must leave as they are.
type image struct {
	base  uint64
	host  []byte
	used  int
	parts []part // operands
}

type part struct{ at, n int }

// Alloc implements kerneltest.Memory.
func (m *image) Alloc(n int) (uint64, []byte, error) {
	at := behind(m.used)
	if n < 0 || at+n+guardBytes > len(m.host) {
		return 0, nil, fmt.Errorf("%w: an operand of %d bytes in what is left of %d", driver.ErrOutOfMemory, n, len(m.host))
	}
	m.used = at + n
	m.parts = append(m.parts, part{at, n})
	return m.base + uint64(at), m.host[at : at+n : at+n], nil
}

// behind returns the offset of an operand after others.
func behind(used int) int { return (used + guardBytes + operandAt - 1) / operandAt * operandAt }

// measured is memory that only finds out how much a case needs.
type measured struct{ used int }

// Alloc implements kerneltest.Memory.
func (m *measured) Alloc(n int) (uint64, []byte, error) {
	at := behind(m.used)
	m.used = at + n
	return uint64(at), make([]byte, n), nil
}

// roomFor returns the bytes that a case needs of an image.
func roomFor(c kerneltest.Case) (int64, error) {
	m := &measured{}
	l := kerneltest.NewLab(m, c.Name)
	c.Prepare(l)
	return int64(m.used + guardBytes + operandAt), l.Err()
}

// perform runs a case on the device and returns what it wrote. It must have left all
// memory alone that it need not write: inputs, and what is around operands.
func (r *rig) perform(ctx context.Context, c kerneltest.Case) (outputs []kerneltest.Output, err error) {
	if err := r.exact(); err != nil && c.Exact {
		return nil, err
	}
	room, err := roomFor(c)
	if err != nil {
		return nil, err
	}
	err = r.scoped(ctx, func(s *device.Scope) error {
		arena, err := s.Arena(device.Workspace, room)
		if err != nil {
			return err
		}
		pinned, err := s.Pinned(device.IO, room)
		if err != nil {
			return err
		}
		m := &image{base: arena.All().Address}
		if m.host, err = pinned.Take(room); err != nil {
			return err
		}
		for i := range m.host {
			m.host[i] = guard
		}
		l := kerneltest.NewLab(m, c.Name)
		launch := c.Prepare(l)
		if err := l.Err(); err != nil {
			return err
		}
		before := bytes.Clone(m.host)
		if err := r.stream.Upload(arena.All(), m.host); err != nil {
			return err
		}
		if err := launch(r.queue(ctx)); err != nil {
			return err
		}
		if err := r.settle(ctx); err != nil {
			return err
		}
		if err := r.stream.Download(m.host, arena.All()); err != nil {
			return err
		}
		if err := r.settle(ctx); err != nil {
			return err
		}
		for _, o := range l.Outputs {
			o.Memory = bytes.Clone(o.Memory)
			outputs = append(outputs, o)
		}
		return m.untouched(before, l)
	})
	return outputs, err
}

// untouched compares what the operation had to leave alone.
func (m *image) untouched(before []byte, l *kerneltest.Lab) error {
	written := func(p part) bool {
		for _, o := range l.Outputs {
			if p.n == len(o.Memory) && p.n > 0 && &m.host[p.at] == &o.Memory[0] {
				return true
			}
		}
		for _, s := range l.Scratch {
			if p.n == len(s) && p.n > 0 && &m.host[p.at] == &s[0] {
				return true
			}
		}
		return false
	}
	end := 0
	for i, p := range append(m.parts, part{len(m.host), 0}) {
		if at := differ(m.host, before, end, p.at); at >= 0 {
			return fmt.Errorf("byte %d behind operand %d, which has %d, was written", at-end, i-1, m.sizeOf(i-1))
		}
		if at := differ(m.host, before, p.at, p.at+p.n); at >= 0 && !written(p) {
			return fmt.Errorf("byte %d of operand %d, an input of %d, was written", at-p.at, i, p.n)
		}
		end = p.at + p.n
	}
	return nil
}

func (m *image) sizeOf(operand int) int {
	if operand < 0 {
		return 0
	}
	return m.parts[operand].n
}

// differ returns the first offset in [from, to) at which two images differ, -1 for none.
func differ(a, b []byte, from, to int) int {
	if bytes.Equal(a[from:to], b[from:to]) {
		return -1
	}
	for a[from] == b[from] {
		from++
	}
	return from
}
