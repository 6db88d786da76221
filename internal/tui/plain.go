package tui

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/tui/cells"
	"github.com/dynctl/dynctl/internal/tui/draw"
)

// Table is one pane as rows of text.
type Table struct {
	Name    string // one of Views, or what the inspected worker has in hand
	Columns []string
	Rows    [][]string
	numbers []bool // columns aligned right
}

// TableOptions say how tables are written.
type TableOptions struct {
	// Views chooses panes by name; all of them when empty.
	Views []string
	// Terminal aligns columns and rounds as on the screen; without it parts are
	// exact, times are RFC 3339 and columns are parted by tabs, for programs.
	Terminal bool
	// Wide adds columns on the right.
	Wide bool
	// ASCII draws the states with ASCII characters.
	ASCII bool
	// Location of times; default UTC.
	Location *time.Location
}

// Tables returns the data of the chosen panes, in the order of their keys.
func Tables(s cluster.Snapshot, o TableOptions) []Table {
	p := newPlain(s, o)
	var out []Table
	for _, t := range []Table{p.workers(), p.leases(), p.queue(), p.latency(), p.events(), p.decisions(), p.nodes()} {
		if wanted(o.Views, t.Name) {
			out = append(out, t)
		}
	}
	if a := s.Activity; a != nil && len(o.Views) == 0 {
		out = append(out, p.activitySequences(a), p.activityTransfers(a))
	}
	return out
}

func wanted(views []string, name string) bool {
	if len(views) == 0 {
		return true
	}
	for _, v := range views {
		if v == name {
			return true
		}
	}
	return false
}

// WriteTable writes the panes of a snapshot as text, for --once -o table. Several
// panes are parted by empty lines and each is headed by its name.
func WriteTable(w io.Writer, s cluster.Snapshot, o TableOptions) error {
	tables := Tables(s, o)
	b := bufio.NewWriter(w)
	for i, t := range tables {
		if len(tables) > 1 {
			if i > 0 {
				fmt.Fprintln(b)
			}
			fmt.Fprintln(b, "# "+t.Name)
		}
		t.write(b, o.Terminal)
	}
	if err := b.Flush(); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	return nil
}

func (t Table) write(w *bufio.Writer, aligned bool) {
	rows := append([][]string{t.Columns}, t.Rows...)
	widths := make([]int, len(t.Columns))
	for _, r := range rows {
		for i, c := range r {
			widths[i] = max(widths[i], cells.Width(c))
		}
	}
	for _, r := range rows {
		parts := make([]string, len(r))
		for i, c := range r {
			c = cells.Clean(c)
			switch {
			case !aligned:
			case t.numbers[i]:
				c = cells.PadLeft(c, widths[i])
			case i < len(r)-1:
				c = cells.PadRight(c, widths[i])
			}
			parts[i] = c
		}
		gap := "\t"
		if aligned {
			gap = "  "
		}
		fmt.Fprintln(w, strings.TrimRight(strings.Join(parts, gap), " "))
	}
}

// plainText makes the parts of tables out of one snapshot.
type plainText struct {
	s *cluster.Snapshot
	o TableOptions
	m *model // formats and looks up; never drawn
}

func newPlain(s cluster.Snapshot, o TableOptions) plainText {
	if o.Location == nil {
		o.Location = time.UTC
	}
	m := newModel(nil, nil, draw.PlainTheme(), Options{ASCII: o.ASCII, Location: o.Location, Now: func() time.Time { return s.Time }})
	m.take(snapshotMsg{s, s.Time})
	return plainText{&m.snap, o, m}
}

// numbered makes a table; column titles that start with ">" are numbers.
func numbered(name string, titles ...string) Table {
	t := Table{Name: name}
	for _, c := range titles {
		text, right := strings.CutPrefix(c, ">")
		t.Columns = append(t.Columns, text)
		t.numbers = append(t.numbers, right)
	}
	return t
}

// float prints a number rounded for people and in full for programs.
func (p plainText) float(f *float64, round func(*float64) string) string {
	if f == nil || p.o.Terminal {
		return round(f)
	}
	return strconv.FormatFloat(*f, 'f', -1, 64)
}

func (p plainText) duration(d *time.Duration, round func(time.Duration) string) string {
	switch {
	case d == nil:
		return cells.Unknown
	case p.o.Terminal:
		return round(*d)
	}
	return d.Round(time.Millisecond).String()
}

func (p plainText) time(t time.Time) string {
	switch {
	case t.IsZero():
		return cells.Unknown
	case p.o.Terminal:
		return t.In(p.o.Location).Format("15:04:05.000")
	}
	return t.In(p.o.Location).Format(time.RFC3339Nano)
}

func (p plainText) workers() Table {
	t := numbered("workers", "NAME", "ROLE", "DEVICE", "STATE", ">SEQS", ">KV USED", ">KV TOTAL", ">TOK/S", ">HIT%", ">LEASE", ">UP")
	if p.o.Wide {
		wide := numbered("", "MODEL", "NODE", "HOST", "VERSION", "INSTANCE", ">WAITING", ">PREEMPTED", "REASON", ">TP")
		t.Columns, t.numbers = append(t.Columns, wide.Columns...), append(t.numbers, wide.numbers...)
	}
	for i := range p.s.Workers {
		w := &p.s.Workers[i]
		used, total := cells.Unknown, cells.Unknown
		if measured(w) && w.Stats.KVTotal > 0 {
			used, total = strconv.Itoa(w.Stats.KVUsed()), strconv.Itoa(w.Stats.KVTotal)
		}
		state := cells.OrUnknown(string(w.State))
		if p.o.Terminal {
			glyph, _ := stateLook(p.m.glyphs, w.State)
			state = glyph + " " + stateWord(w)
		}
		row := []string{w.Name, cells.OrUnknown(string(w.Role)), cells.OrUnknown(p.m.known.devices[i]), state, p.sequences(w), used, total,
			p.float(w.TokS, cells.CompactOr), p.float(w.HitRate, cells.Percent), p.duration(w.Lease, cells.Seconds), p.duration(w.Uptime, cells.Uptime)}
		if !p.o.Terminal && w.HitRate != nil {
			row[8] = strconv.FormatFloat(math.Round(*w.HitRate*1e6)/1e4, 'f', -1, 64)
		}
		if p.o.Wide {
			row = append(row, cells.OrUnknown(w.Model), cells.OrUnknown(w.Node), cells.OrUnknown(p.m.known.hosts[i]), cells.OrUnknown(p.m.known.versions[i]),
				cells.OrUnknown(instanceText(w.InstanceID)), number(w, w.Stats.Waiting), number(w, w.Stats.PreemptedTotal), cells.OrUnknown(w.Reason), degreeText(w.TensorParallel))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

func (p plainText) sequences(w *cluster.Worker) string {
	if p.o.Terminal || !measured(w) {
		return seqText(w)
	}
	return strconv.Itoa(w.Stats.Running)
}

func (p plainText) leases() Table {
	t := numbered("leases", "OWNER", "LEASE ID", ">TTL LEFT", ">TTL", ">RENEWED AGO")
	for i := range p.s.Leases {
		l := &p.s.Leases[i]
		t.Rows = append(t.Rows, []string{cells.OrUnknown(l.Owner), l.ID.String(), p.duration(&l.Left, cells.Seconds), p.duration(&l.TTL, cells.Seconds), p.duration(&l.Renewed, cells.Seconds)})
	}
	return t
}

func (p plainText) queue() Table {
	q := &p.s.Queue
	t := numbered("queue", "WHAT", ">VALUE")
	rate := p.float(q.AdmittedS, cells.Millis) // three digits
	for _, r := range [][2]string{
		{"depth", p.m.depthText()}, {"prefill queue", cells.IntOr(q.Prefill)}, {"prefill in work", cells.IntOr(q.PrefillBusy)},
		{"waiting in engines", cells.IntOr(q.Waiting)}, {"waiting for transfer", cells.IntOr(q.RemoteWait)}, {"in flight", cells.IntOr(q.InFlight)},
		{"admitted/s", rate}, {"rejected", fmt.Sprint(q.Rejected)}, {"preempted", fmt.Sprint(q.Preempted)},
		{"cancelled", fmt.Sprint(q.Cancelled)}, {"fallback", fmt.Sprint(q.Fallbacks)},
	} {
		t.Rows = append(t.Rows, r[:])
	}
	return t
}

func (p plainText) latency() Table {
	l := &p.s.Latency
	t := numbered("latency", "WHAT", ">P50", ">P95", ">P99", ">MEAN")
	add := func(name string, v cluster.Percentiles) {
		t.Rows = append(t.Rows, []string{name, p.float(v.P50, cells.Millis), p.float(v.P95, cells.Millis), p.float(v.P99, cells.Millis), cells.Unknown})
	}
	add("TTFT ms", l.TTFT)
	add("ITL ms", l.ITL)
	add("queue ms", l.Queue)
	none := []string{cells.Unknown, cells.Unknown, cells.Unknown}
	t.Rows = append(t.Rows,
		append(append([]string{"KV xfer ms"}, none...), p.float(l.Transfer, cells.Millis)),
		append(append([]string{"KV xfer B/s"}, none...), p.float(l.TransferBS, cells.CompactOr)))
	return t
}

func (p plainText) nodes() Table {
	t := numbered("nodes", "NAME", "HOST", "DEVICES", ">WORKERS", ">SEQS", ">KV USED", ">KV TOTAL", ">TOK/S", ">USE%", ">LEASE", ">UP", "VERSION", "FRONTEND")
	for i := range p.s.Nodes {
		n, f := &p.s.Nodes[i], &p.m.known.nodes[i]
		var lease, up *time.Duration
		if l := p.m.nodeLease(n); l != nil {
			lease = &l.Left
		}
		if !n.StartedAt.IsZero() {
			d := p.s.Time.Sub(n.StartedAt)
			up = &d
		}
		t.Rows = append(t.Rows, []string{cells.OrUnknown(n.Name), cells.OrUnknown(n.Host), deviceList(n), strconv.Itoa(f.workers), strconv.Itoa(f.running),
			strconv.Itoa(f.kvUsed), strconv.Itoa(f.kvAll), p.float(f.tokS, cells.CompactOr), cells.Percent(f.meanUse()),
			p.duration(lease, cells.Seconds), p.duration(up, cells.Uptime), cells.OrUnknown(n.Version), cells.OrUnknown(n.FrontendURL)})
	}
	return t
}

func (p plainText) events() Table {
	t := numbered("events", "TIME", "WORKER", "EVENT", ">ID", ">BLOCKS", "PREFIX")
	for i := range p.s.Events {
		e := &p.s.Events[i]
		t.Rows = append(t.Rows, []string{p.time(e.Time), cells.OrUnknown(e.Worker), cells.OrUnknown(string(e.Kind)), strconv.FormatUint(e.EventID, 10), eventBlocks(e), p.m.eventPrefix(e)})
	}
	return t
}

func (p plainText) decisions() Table {
	t := numbered("router", "TIME", "REQUEST", "PREFILL", "DECODE", ">OVERLAP", ">BLOCKS", ">COST", "2ND", "POLICY")
	for i := range p.s.Decisions {
		d := &p.s.Decisions[i]
		pre, dec := stages(d)
		cost, overlap := cells.Unknown, cells.Unknown
		if c := chosenCandidate(d); c != nil {
			cost = costText(c.Cost)
		}
		if d.Prefill != "" || d.WeighsOverlap() {
			overlap = strconv.Itoa(d.Overlap)
		}
		t.Rows = append(t.Rows, []string{p.time(d.Time), cells.OrUnknown(d.RequestID), pre, dec, overlap, strconv.Itoa(d.Blocks), cost, secondText(d), cells.OrUnknown(d.Policy)})
	}
	return t
}
