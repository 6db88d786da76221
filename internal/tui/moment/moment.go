// Package moment is what the screen shows at one moment: the newest snapshot, what was
// worked out of it once, its age by the clock of the screen, and how all of that reads.
//
// The frame keeps one [Moment] up to date; panes and screens hold it and read it. Drawing
// therefore knows neither a clock nor a source.
package moment

import (
	"fmt"
	"strconv"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/tui/cells"
	"github.com/dynctl/dynctl/internal/tui/draw"
)

// Moment is a snapshot with its age. Only the frame changes it, between two frames.
type Moment struct {
	Snap  cluster.Snapshot
	Known Facts // of Snap
	Have  bool  // a snapshot came

	Age       time.Duration // of the snapshot, by the clock it was made by
	Countdown time.Duration // what leases have lost since; it stands still while the data is stale
	Stale     bool          // the snapshot is remembered: how things are now is not known
	Recorded  bool          // the snapshot comes from a file
	Frozen    bool          // the screen keeps it although newer ones may have come
	Kept      time.Duration // since it came
	Waiting   string        // why there is no snapshot yet

	Width, Height int // of the screen
	Glyphs        *draw.Glyphs
	ASCII         bool // draw nothing else
	Location      *time.Location
}

// New returns a moment without a snapshot.
func New(ascii bool, location *time.Location) *Moment {
	m := &Moment{Glyphs: draw.UnicodeGlyphs(), ASCII: ascii, Location: location}
	// Terminals set to wide East Asian glyphs would draw boxes of double width.
	if ascii || cells.Width(m.Glyphs.Full+m.Glyphs.Ready+m.Glyphs.Horizontal) != 3 {
		m.ASCII, m.Glyphs = true, draw.ASCIIGlyphs()
	}
	return m
}

// Take replaces the snapshot.
func (m *Moment) Take(s cluster.Snapshot) {
	m.Snap, m.Have = s, true
	m.Known = factsOf(&m.Snap)
}

// At is the time on the screen, by the clock of the snapshot: recordings keep their own.
func (m *Moment) At() time.Time { return m.Snap.Time.Add(m.Age) }

// Worker finds a worker by name.
func (m *Moment) Worker(name string) (w *cluster.Worker, row int) {
	i, ok := m.Known.byName[name]
	if !ok || i >= len(m.Snap.Workers) {
		return nil, -1
	}
	return &m.Snap.Workers[i], i
}

// NoWorker says that there is no worker of that name.
func (m *Moment) NoWorker(name string) string {
	return fmt.Sprintf("no worker %q in cluster %s", name, cells.OrUnknown(m.Snap.Cluster))
}

// Node finds a node, with what its workers do, by id or name.
func (m *Moment) Node(name string) (*cluster.Node, *NodeFacts) {
	i, ok := m.Known.nodeAt[name]
	if !ok {
		return nil, nil
	}
	return &m.Snap.Nodes[i], &m.Known.Nodes[i]
}

// Lease finds a lease that has not ended.
func (m *Moment) Lease(id cluster.InstanceID) *cluster.Lease {
	if i, ok := m.Known.leaseAt[id]; ok {
		return &m.Snap.Leases[i]
	}
	return nil
}

// Activity returns the sequences and transfers of a worker, or nil if the snapshot has none.
func (m *Moment) Activity(worker string) *cluster.Activity {
	if a := m.Snap.Activity; a != nil && a.Worker == worker {
		return a
	}
	return nil
}

// Depth is the number of waiting requests, or the sign of an unknown value.
func (m *Moment) Depth() string {
	n, known := 0, false
	for _, p := range []*int{m.Snap.Queue.Prefill, m.Snap.Queue.Waiting} {
		if p != nil {
			n, known = n+*p, true
		}
	}
	if !known {
		return cells.Unknown
	}
	return strconv.Itoa(n)
}
