package tui

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/dynctl/dynctl/internal/tui/cells"

	tea "github.com/charmbracelet/bubbletea"

	"github.com/dynctl/dynctl/internal/client"
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
func (m *model) still() bool {
	return m.play.held || !m.play.Last.IsZero() && !m.snap.Time.Before(m.play.Last)
}

// playText is where the replay is.
func (m *model) playText() string {
	p := m.play
	text := "REPLAY x" + strconv.FormatFloat(p.Speed, 'f', -1, 64)
	switch {
	case p.held:
		text = "REPLAY held"
	case m.have && m.still():
		text = "REPLAY ended"
	}
	if !p.Last.After(p.First) || !m.have {
		return text
	}
	return fmt.Sprintf("%s %s of %s", text, cells.ClockLeft(m.at().Sub(p.First)), cells.ClockLeft(p.Last.Sub(p.First)))
}

func (m *model) cannotWind() string {
	if m.play == nil || m.play.player == nil {
		return "only a replay can be wound: dynctl top --replay FILE"
	}
	return ""
}

func (m *model) holdPlay(on bool) {
	m.play.held = on
	if m.play.player != nil {
		m.play.player.Hold(on)
	}
}

// wind carries out the keys that wind.
func (m *model) wind(key string) tea.Cmd {
	p := m.play.player
	switch key {
	case "[":
		p.Seek(-shortWind)
	case "]":
		p.Seek(shortWind)
	case "{":
		p.Seek(-longWind)
	case "}":
		p.Seek(longWind)
	case ",":
		m.play.held = true
		p.Step(-1)
	case ".":
		m.play.held = true
		p.Step(1)
	}
	return nil
}

// nextSpeed is the step above or below the present speed; ok is false at the end.
func (m *model) nextSpeed(up bool) (speed float64, ok bool) {
	steps := speeds()
	for i := range steps {
		v := steps[i]
		if !up {
			v = steps[len(steps)-1-i]
		}
		if up && v > m.play.Speed || !up && v < m.play.Speed {
			return v, true
		}
	}
	return m.play.Speed, false
}

func (m *model) cannotSpeed(up bool) string {
	if _, ok := m.nextSpeed(up); !ok {
		return "x" + strconv.FormatFloat(m.play.Speed, 'f', -1, 64) + " is the last step; :speed takes any"
	}
	return ""
}

func (m *model) setSpeed(v float64) {
	m.play.Speed = v
	if m.play.player != nil {
		m.play.player.SetSpeed(v)
	}
}

func (m *model) runSeek(args []string) (tea.Cmd, error) {
	if why := m.cannotWind(); why != "" {
		return nil, errors.New(why)
	}
	if len(args) != 1 {
		return nil, usage("seek")
	}
	d, err := time.ParseDuration(args[0])
	if err != nil {
		return nil, fmt.Errorf("%q is not a duration like 90s or -2m", args[0])
	}
	m.play.player.Seek(d)
	return nil, nil
}

func (m *model) runSpeed(args []string) (tea.Cmd, error) {
	if why := m.cannotWind(); why != "" {
		return nil, errors.New(why)
	}
	if len(args) != 1 {
		return nil, usage("speed")
	}
	v, err := strconv.ParseFloat(args[0], 64)
	if err != nil || !(v > 0) || v > client.MaxSpeed {
		return nil, fmt.Errorf("%q is not a number above 0, up to %d", args[0], client.MaxSpeed)
	}
	m.setSpeed(v)
	return nil, nil
}
