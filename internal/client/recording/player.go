package recording

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
)

// Player is a [client.Playback] of a recording. Having shown the last snapshot it waits
// to be wound back.
type Player struct {
	file   *File
	out    chan cluster.Snapshot // capacity 1, the newest; closed by run
	orders chan func(*playing)   // capacity ordersAhead
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// ordersAhead limits the orders that wait while a snapshot is read. More are dropped, like
// keys that come faster than a screen can follow.
const ordersAhead = 64

var _ client.Playback = (*Player)(nil)

// playing is the position and state of a player. Only its goroutine touches it.
type playing struct {
	n     int // the snapshot that is shown
	speed float64
	held  bool

	have  bool // now is snapshot at
	at    int
	now   cluster.Snapshot
	moved bool // n is to be shown
}

// ErrRecording is returned for what cannot be done to a recording.
var ErrRecording = errors.New("a recording cannot be changed")

// Play plays the file from a snapshot on, speed times as fast as it was recorded; speed
// must be positive. The file must stay open until the player is closed.
func (f *File) Play(from int, speed float64) *Player {
	ctx, cancel := context.WithCancel(context.Background())
	p := &Player{file: f, out: make(chan cluster.Snapshot, 1), orders: make(chan func(*playing), ordersAhead), cancel: cancel}
	p.wg.Go(func() { p.run(ctx, playing{n: from, speed: speed, moved: true}) })
	return p
}

func (p *Player) run(ctx context.Context, s playing) {
	defer close(p.out)
	t := time.NewTimer(0)
	defer t.Stop()
	shown := time.Now()
	for {
		if s.moved {
			s.moved = false
			if !p.show(ctx, &s) {
				return
			}
			shown = time.Now()
		}
		var due <-chan time.Time
		if !s.held && s.n+1 < p.file.Len() {
			gap := p.file.lines[s.n+1].at.Sub(p.file.lines[s.n].at)
			t.Reset(time.Until(shown.Add(time.Duration(float64(gap) / s.speed))))
			due = t.C
		}
		select {
		case <-ctx.Done():
			return
		case f := <-p.orders:
			f(&s)
		case <-due:
			s.n, s.moved = s.n+1, true
		}
	}
}

// show delivers the present snapshot.
func (p *Player) show(ctx context.Context, s *playing) bool {
	snap, err := s.read(p.file)
	if err != nil {
		// The last good one stays, with what is wrong.
		snap = s.now
		snap.Notices = append([]string{err.Error()}, snap.Notices...)
		s.held = true
	}
	select {
	case <-p.out: // nobody has read the older one
	default:
	}
	select {
	case p.out <- snap:
		return true
	case <-ctx.Done():
		return false
	}
}

// read returns the present snapshot; the next one costs one line only.
func (s *playing) read(f *File) (cluster.Snapshot, error) {
	var snap cluster.Snapshot
	var err error
	if s.have && s.n == s.at+1 {
		snap, err = f.next(s.now, s.n)
	} else {
		snap, err = f.Snapshot(s.n)
	}
	if err == nil {
		s.have, s.at, s.now = true, s.n, snap
	}
	return snap, err
}

func (p *Player) order(f func(*playing)) {
	select {
	case p.orders <- f:
	default:
	}
}

// Snapshots implements [client.Source].
func (p *Player) Snapshots() <-chan cluster.Snapshot { return p.out }

// SetInterval implements [client.Source]: a recording has its own.
func (p *Player) SetInterval(time.Duration) {}

// Inspect implements [client.Source]: a recording has what was looked at.
func (p *Player) Inspect(string) {}

// Log implements [client.Source].
func (p *Player) Log(context.Context, string, int, func([]byte) error) error { return ErrRecording }

// Act implements [client.Source].
func (p *Player) Act(context.Context, client.Action) error { return ErrRecording }

// ReadOnly implements [client.Source].
func (p *Player) ReadOnly() string { return ErrRecording.Error() }

// Hold implements [client.Playback].
func (p *Player) Hold(held bool) { p.order(func(s *playing) { s.held = held }) }

// SetSpeed implements [client.Playback].
func (p *Player) SetSpeed(speed float64) {
	if speed > 0 {
		p.order(func(s *playing) { s.speed = speed })
	}
}

// Step implements [client.Playback].
func (p *Player) Step(n int) {
	p.order(func(s *playing) { s.held = true; s.wind(p.file, s.n+n) })
}

// Seek implements [client.Playback].
func (p *Player) Seek(by time.Duration) {
	p.order(func(s *playing) {
		first, _ := p.file.Span()
		to := p.file.At(p.file.lines[s.n].at.Sub(first) + by)
		if to == s.n && by > 0 { // across a gap in the recording
			to++
		}
		s.wind(p.file, to)
	})
}

func (s *playing) wind(f *File, to int) {
	s.n, s.moved = min(max(to, 0), f.Len()-1), true
}

// Close implements [client.Source].
func (p *Player) Close() error {
	p.cancel()
	p.wg.Wait()
	return nil
}
