//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	maxPacket = 1 << 16
	// maxQueued bounds the packets under way in one direction; more are lost, as they are
	// in a router.
	maxQueued = 8192
)

// link is what happens to packets.
type link struct {
	delay time.Duration
	loss  float64

	taken, lost atomic.Int64 // packets of both ways; lost ones are taken, too
}

// packet is one under way.
type packet struct {
	data []byte
	due  time.Time
}

// carry takes packets from one end to the other, in order, until ctx ends or an end is
// closed. It returns an error if the link failed by itself.
func (l *link) carry(ctx context.Context, to io.Writer, from io.Reader, seed uint64) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	queue := make(chan packet, maxQueued)
	failed := make(chan error, 1)
	go func() { failed <- deliver(ctx, to, queue) }()
	err := l.collect(ctx, from, queue, rand.New(rand.NewPCG(seed, 0)))
	cancel()
	return errors.Join(err, <-failed)
}

func (l *link) collect(ctx context.Context, from io.Reader, queue chan<- packet, r *rand.Rand) error {
	buf := make([]byte, maxPacket)
	for {
		n, err := from.Read(buf)
		switch {
		case ctx.Err() != nil || errors.Is(err, os.ErrClosed) || errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("read packet: %w", err)
		}
		l.taken.Add(1)
		if r.Float64() < l.loss {
			l.lost.Add(1)
			continue
		}
		select {
		case queue <- packet{append([]byte(nil), buf[:n]...), time.Now().Add(l.delay)}:
		default: // full
			l.lost.Add(1)
		}
	}
}

func deliver(ctx context.Context, to io.Writer, queue <-chan packet) error {
	due := time.NewTimer(0)
	defer due.Stop()
	for {
		select {
		case p := <-queue:
			due.Reset(time.Until(p.due))
			select {
			case <-due.C:
			case <-ctx.Done():
				return nil
			}
			if _, err := to.Write(p.data); err != nil && ctx.Err() == nil && !errors.Is(err, syscall.EIO) { // EIO: the device is down, the packet lost
				return fmt.Errorf("write packet: %w", err)
			}
		case <-ctx.Done():
			return nil
		}
	}
}
