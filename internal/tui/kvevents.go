package tui

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
)

// timeOfDay is minutes, seconds and milliseconds: the hour is in the header.
func (m *model) timeOfDay(t time.Time) string {
	if t.IsZero() {
		return unknown
	}
	return t.In(m.opts.Location).Format("04:05.000")
}

// eventBlocks is the signed number of blocks an event moved.
func eventBlocks(e *cluster.KVEvent) string {
	if e.Kind == cluster.KVStored {
		return "+" + strconv.Itoa(e.Count)
	}
	if e.Count == 0 {
		return "0"
	}
	return "-" + strconv.Itoa(e.Count)
}

// eventPrefix says which blocks: the last block's hash and the depth it reaches,
// or why blocks went.
func (m *model) eventPrefix(e *cluster.KVEvent) string {
	hash := func(h uint64) string {
		return fmt.Sprintf("%04x", h>>48) + m.glyphs.more
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
	return orUnknown(e.Reason)
}

func eventStyle(k cluster.KVEventKind) style {
	switch k {
	case cluster.KVStored:
		return good
	case cluster.KVRemoved:
		return plain
	case cluster.KVCleared:
		return warn
	}
	return dim
}

// eventColumns are the columns of pane 5.
func (m *model) eventColumns() []column {
	at := func(i int) *cluster.KVEvent { return &m.snap.Events[i] }
	return []column{
		{title: "TIME", width: 9, leave: 2, cell: func(i, _ int) []span { return []span{{m.timeOfDay(at(i).Time), dim}} }},
		{title: "WORKER", width: max(m.known.eventW, 8), cell: func(i, w int) []span {
			return []span{{clipMiddle(orUnknown(at(i).Worker), w, m.glyphs.more), strong}}
		}},
		{title: "EVENT", width: 7, leave: 4, cell: func(i, _ int) []span {
			return []span{{orUnknown(string(at(i).Kind)), eventStyle(at(i).Kind)}}
		}},
		{title: "BLOCKS", width: 6, right: true, leave: 5, cell: func(i, _ int) []span { return []span{{eventBlocks(at(i)), plain}} }},
		{title: "PREFIX", width: 10, most: 24, leave: 3, cell: func(i, _ int) []span { return []span{{m.eventPrefix(at(i)), dim}} }},
	}
}

// eventRows describes pane 5 to its list.
func (m *model) eventRows() rowSource {
	at := func(i int) *cluster.KVEvent { return &m.snap.Events[i] }
	return rowSource{
		n:      len(m.snap.Events),
		newest: true,
		key:    func(i int) rowKey { return rowKey{at(i).Worker, at(i).EventID} },
		text: func(i int) string {
			return strings.Join([]string{at(i).Worker, string(at(i).Kind), m.eventPrefix(at(i))}, " ")
		},
	}
}

func (m *model) drawEvents(a area) {
	m.drawTable(a.sub(rect{0, 0, a.w(), a.h() - 1}), paneEvents, m.eventColumns(), nil, "no KV events yet")
	lag, rate := unknown, unknown
	if m.snap.KVEventLag != nil {
		if lag = rtt(*m.snap.KVEventLag); lag == "" {
			lag = "0ms"
		}
	}
	if m.snap.KVEventRate != nil {
		rate = compact(*m.snap.KVEventRate)
	}
	gaps := plain
	if m.snap.KVEventGaps > 0 {
		gaps = warn
	}
	a.spans(0, a.h()-1, a.w(), []span{
		{"gaps ", dim}, {commas(m.snap.KVEventGaps), gaps}, {"   lag ", dim}, {lag, plain}, {"   ", dim}, {rate, plain}, {" events/s", dim},
	})
}
