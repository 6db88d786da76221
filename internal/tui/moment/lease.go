package moment

import (
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/tui/cells"
	"github.com/dynctl/dynctl/internal/tui/draw"
)

// LeaseLeft is the time a lease has left. A sign "~" marks what is remembered,
// not known.
func (m *Moment) LeaseLeft(left, ttl time.Duration) []draw.Span {
	left -= m.Countdown
	text := cells.Seconds(max(left, 0))
	if m.Stale {
		return []draw.Span{draw.Dim.Text("~" + text)}
	}
	switch {
	case left <= 0:
		return []draw.Span{draw.Bad.Text(text)}
	case ttl > 0 && left < ttl/3:
		return []draw.Span{draw.Warn.Text(text)}
	}
	return []draw.Span{draw.Plain.Text(text)}
}

// TTL is a bar of the time left beside its number; an ended lease says so.
func (m *Moment) TTL(l *cluster.Lease, width int) []draw.Span {
	left := l.Left - m.Countdown
	if left <= 0 && !m.Stale {
		return []draw.Span{draw.Bad.Text(m.Glyphs.Lost + " ended")}
	}
	number := m.LeaseLeft(l.Left, l.TTL)
	text := cells.PadLeft(number[0].Text, 5)
	room := width - cells.Width(text) - 1
	if l.TTL <= 0 || room < 3 {
		return number
	}
	share := float64(left) / float64(l.TTL)
	st := draw.Good
	if share < 1.0/3 {
		st = draw.Warn
	}
	return append(draw.Bar(m.Glyphs, share, room, st), number[0].Style.Text(" "+text))
}
