package tui

import (
	"fmt"
	"strconv"
	"time"

	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/tui/cells"
	"github.com/dynctl/dynctl/internal/tui/moment"
)

// Replay says what is known of a recording that is shown.
type Replay struct {
	First, Last time.Time // times of its first and last snapshot
	Speed       float64   // how many times as fast as recorded; default 1
}

// playback is the state of a replay as the keys left it.
type playback struct {
	Replay
	player client.Playback // nil where a single screen is drawn
	held   bool
}

// speeds are the steps of + and - in a replay.
func speeds() []float64 { return []float64{0.25, 0.5, 1, 2, 4, 8, 16, 32, 64} }

// Steps of the keys that wind.
const (
	shortWind = 10 * time.Second
	longWind  = time.Minute
)

func newPlayback(r *Replay, source client.Source) *playback {
	if r == nil {
		return nil
	}
	p := &playback{Replay: *r}
	if p.Speed <= 0 {
		p.Speed = 1
	}
	p.player, _ = source.(client.Playback)
	return p
}

// still reports whether the replay stands: it was held, or is at its end.
func (p *playback) still(s *cluster.Snapshot) bool {
	return p.held || !p.Last.IsZero() && !s.Time.Before(p.Last)
}

// text describes the position of the replay.
func (p *playback) text(m *moment.Moment) string {
	text := "REPLAY x" + strconv.FormatFloat(p.Speed, 'f', -1, 64)
	switch {
	case p.held:
		text = "REPLAY held"
	case m.Have && p.still(&m.Snap):
		text = "REPLAY ended"
	}
	if !p.Last.After(p.First) || !m.Have {
		return text
	}
	return fmt.Sprintf("%s %s of %s", text, cells.ClockLeft(m.At().Sub(p.First)), cells.ClockLeft(p.Last.Sub(p.First)))
}

// cannotWind says why a replay cannot be wound. It may be called on nil.
func (p *playback) cannotWind() string {
	if p == nil || p.player == nil {
		return "only a replay can be wound: dynctl top --replay FILE"
	}
	return ""
}

func (p *playback) hold(on bool) {
	p.held = on
	if p.player != nil {
		p.player.Hold(on)
	}
}

// wind carries out the keys that wind.
func (p *playback) wind(key string) {
	switch key {
	case "[":
		p.player.Seek(-shortWind)
	case "]":
		p.player.Seek(shortWind)
	case "{":
		p.player.Seek(-longWind)
	case "}":
		p.player.Seek(longWind)
	case ",":
		p.held = true
		p.player.Step(-1)
	case ".":
		p.held = true
		p.player.Step(1)
	}
}

// nextSpeed is the step above or below the present speed; ok is false at the end.
func (p *playback) nextSpeed(up bool) (speed float64, ok bool) {
	return nextStep(speeds(), p.Speed, up)
}

func (p *playback) cannotSpeed(up bool) string {
	if _, ok := p.nextSpeed(up); !ok {
		return "x" + strconv.FormatFloat(p.Speed, 'f', -1, 64) + " is the last step; :speed takes any"
	}
	return ""
}

func (p *playback) setSpeed(v float64) {
	p.Speed = v
	if p.player != nil {
		p.player.SetSpeed(v)
	}
}
