package moment

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/tui/cells"
	"github.com/dynctl/dynctl/internal/tui/draw"
)

// TimeOfDay is minutes, seconds and milliseconds: the hour is in the header.
func (m *Moment) TimeOfDay(t time.Time) string {
	if t.IsZero() {
		return cells.Unknown
	}
	return t.In(m.Location).Format("04:05.000")
}

// EventBlocks is the signed number of blocks an event moved.
func EventBlocks(e *cluster.KVEvent) string {
	if e.Kind == cluster.KVStored {
		return "+" + strconv.Itoa(e.Count)
	}
	if e.Count == 0 {
		return "0"
	}
	return "-" + strconv.Itoa(e.Count)
}

// EventPrefix says which blocks: the last block's hash and the depth it reaches,
// or why blocks went. digits is the number of the hash's digits to show, of 16.
func (m *Moment) EventPrefix(e *cluster.KVEvent, digits int) string {
	hash := func(h uint64) string {
		all := fmt.Sprintf("%016x", h)
		if digits < len(all) {
			return all[:digits] + m.Glyphs.More
		}
		return all
	}
	switch {
	case e.Kind == cluster.KVCleared:
		return strings.TrimSpace("all " + e.Reason)
	case e.Kind == cluster.KVStored && len(e.Stored) > 0:
		return fmt.Sprintf("%s d%d", hash(e.Stored[len(e.Stored)-1].BlockHash), e.StartPosition+e.Count)
	case e.Kind == cluster.KVStored:
		return fmt.Sprintf("d%d", e.StartPosition+e.Count)
	case len(e.Removed) > 0:
		return strings.TrimSpace(hash(e.Removed[0]) + " " + e.Reason)
	}
	return cells.OrUnknown(e.Reason)
}

// EventStyle is the color of a kind of event.
func EventStyle(k cluster.KVEventKind) draw.Style {
	switch k {
	case cluster.KVStored:
		return draw.Good
	case cluster.KVRemoved:
		return draw.Plain
	case cluster.KVCleared:
		return draw.Warn
	}
	return draw.Dim
}
