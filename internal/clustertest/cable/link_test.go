//go:build linux

package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// far is an end that notes what comes when.
type far struct {
	mu      sync.Mutex
	packets [][]byte
	at      []time.Time
}

func (f *far) Write(b []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.packets, f.at = append(f.packets, bytes.Clone(b)), append(f.at, time.Now())
	return len(b), nil
}

// near is an end from which packets come, each after a pause; then it is closed at once,
// or when all has arrived.
type near struct {
	n     int
	pause time.Duration
	last  time.Duration
}

func (s *near) Read(b []byte) (int, error) {
	if s.n == 0 {
		time.Sleep(s.last)
		return 0, os.ErrClosed
	}
	s.n--
	time.Sleep(s.pause)
	return copy(b, []byte{byte(s.n >> 8), byte(s.n)}), nil
}

func carried(t *testing.T, l *link, seed uint64, from *near) *far {
	t.Helper()
	f := &far{}
	if err := l.carry(t.Context(), f, from, seed); err != nil {
		t.Error(err)
	}
	return f
}

func TestDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		f := carried(t, &link{delay: 50 * time.Millisecond}, 1, &near{n: 10, pause: 20 * time.Millisecond, last: time.Second})
		if len(f.packets) != 10 {
			t.Fatalf("%d packets arrived", len(f.packets))
		}
		for i, at := range f.at {
			if took, want := at.Sub(begin), time.Duration(i+1)*20*time.Millisecond+50*time.Millisecond; took != want {
				t.Errorf("packet %d arrived after %s, want %s", i, took, want)
			}
			if want := []byte{0, byte(9 - i)}; !bytes.Equal(f.packets[i], want) {
				t.Errorf("packet %d is %v, want %v", i, f.packets[i], want)
			}
		}
	})
}

// The same packets are lost for the same seed, others for another one.
func TestLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pass := func(loss float64, seed uint64) [][]byte {
			l := &link{loss: loss}
			got := carried(t, l, seed, &near{n: 1000, last: time.Second}).packets
			if taken, lost := l.taken.Load(), l.lost.Load(); taken != 1000 || lost != int64(1000-len(got)) {
				t.Errorf("%d taken and %d lost of 1000 packets, %d arrived", taken, lost, len(got))
			}
			return got
		}
		if n := len(pass(0, 1)); n != 1000 {
			t.Errorf("%d of 1000 packets arrive without loss", n)
		}
		if n := len(pass(1, 1)); n != 0 {
			t.Errorf("%d packets arrive where all are lost", n)
		}
		one, again, other := pass(0.1, 1), pass(0.1, 1), pass(0.1, 2)
		if n := len(one); n == 1000 || n < 800 {
			t.Errorf("%d of 1000 packets arrive where a tenth is lost", n)
		}
		if !slices.EqualFunc(one, again, bytes.Equal) || slices.EqualFunc(one, other, bytes.Equal) {
			t.Error("the seed does not decide what is lost")
		}
	})
}

// More packets than are kept are lost, and the others come in time.
func TestFullLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		f := carried(t, &link{delay: time.Minute}, 1, &near{n: 2 * maxQueued, last: 2 * time.Minute})
		if n := len(f.packets); n < maxQueued || n > maxQueued+1 || f.at[n-1].Sub(begin) != time.Minute {
			t.Errorf("%d packets arrive, the last after %s", n, f.at[n-1].Sub(begin))
		}
	})
}

// An end of the context ends both ways, with packets under way.
func TestEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r, w := io.Pipe()
		defer context.AfterFunc(ctx, func() { _ = w.CloseWithError(os.ErrClosed) })() // maybe before carry knows: as reading a closed device
		go func() { _, _ = w.Write([]byte("x")) }()
		begin := time.Now()
		if err := (&link{delay: time.Hour}).carry(ctx, &far{}, r, 1); err != nil || time.Since(begin) != time.Second {
			t.Errorf("ended after %s: %v", time.Since(begin), err)
		}
	})
}
