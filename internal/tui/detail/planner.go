package detail

import (
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/tui/cells"
	"github.com/dynctl/dynctl/internal/tui/draw"
	"github.com/dynctl/dynctl/internal/tui/moment"
)

// planning is the screen of the planner: the newest decision with all its numbers, the rates, and what
// changed.
type planning struct {
	*moment.Moment
	quiet
}

// Planner returns the screen of the planner.
func Planner(m *moment.Moment) Screen { return &planning{Moment: m} }

func (m *planning) Header() []draw.Part { return titled(m.Moment, "planner", m.Planning().Word) }

func (m *planning) Subject() Subject {
	return Subject{Title: "planner", Value: m.Planner(), NoWorker: notWorker, NoOpen: noFurther}
}

func (m *planning) Sections(width int) [][]Section {
	room := max(width-4, 10)
	out := m.pool(m.Planner(), "", room)
	all := m.OtherPlanners()
	for i := range all {
		out = append(out, m.pool(&all[i], cluster.PoolWords(all[i].Pool)+": ", room)...)
	}
	return [][]Section{out}
}

// pool describes the planner of one pool, in sections whose titles begin with its name.
func (m *planning) pool(p *cluster.PlannerView, name string, room int) []Section {
	state := m.PlanningOf(p)
	first := [][]draw.Span{{state.Style.Text(state.Glyph + " " + state.Word)}}
	if !state.Decided {
		return []Section{{name + "decision", append(first, folded(state.Why, room, draw.Plain)...)}}
	}
	for _, line := range p.Explanation {
		first = append(first, folded(line, room, draw.Plain)...)
	}
	first = append(first,
		draw.Fact("mode", cells.OrUnknown(p.Mode), draw.Plain),
		draw.Fact("by", p.Node+", "+cells.Age(max(m.At().Sub(p.HeardAt), 0))+" ago", draw.Plain))
	out := []Section{{name + "decision", first}, m.rates(name+"observed requests/s", p, p.Rates, room), m.rates(name+"forecast requests/s", p, p.Forecasts, room)}
	var orders, changes [][]draw.Span
	for _, o := range p.Orders {
		orders = append(orders, m.dated(o.Time, o.Text+", by "+o.Node+": "+o.Result, room)...)
	}
	if len(orders) > 0 {
		out = append(out, Section{name + "carried out, newest first", orders})
	}
	for _, c := range p.Changes {
		changes = append(changes, m.dated(c.Time, c.Why+": "+c.Text, room)...)
	}
	if len(changes) == 0 {
		changes = [][]draw.Span{{draw.Dim.Text("none was seen")}}
	}
	return append(out, Section{name + "changes, newest first", changes})
}

// dated is a text after its time, in lines of that width.
func (m *planning) dated(t time.Time, text string, width int) (out [][]draw.Span) {
	at := t.In(m.Location).Format(time.TimeOnly) + "  "
	for i, line := range cells.Fold(text, max(width-len(at), 10)) {
		if i > 0 {
			at = cells.PadRight("", len(at))
		}
		out = append(out, []draw.Span{draw.Dim.Text(at), draw.Plain.Text(line)})
	}
	return out
}

// rates draws how a rate went.
func (m *planning) rates(name string, p *cluster.PlannerView, samples []*float64, width int) Section {
	samples = samples[max(len(samples)-width, 0):]
	top, some := draw.Peak(samples)
	if !some {
		return Section{name, [][]draw.Span{{draw.Dim.Text("no samples yet")}}}
	}
	var lines [][]draw.Span
	for _, l := range draw.Sparkline(samples, width, 3, top, m.Glyphs.Spark) {
		lines = append(lines, []draw.Span{draw.Focused.Text(l)})
	}
	return Section{name + ", last " + PlannedSpan(p, len(samples)) + ", max " + cells.PerSecond(top), lines}
}

// PlannedSpan is the time that so many samples of the planner cover.
func PlannedSpan(p *cluster.PlannerView, samples int) string {
	return cells.Uptime(time.Duration(samples) * p.Every)
}

// folded is a text in lines of that width.
func folded(text string, width int, st draw.Style) (out [][]draw.Span) {
	for _, line := range cells.Fold(text, width) {
		out = append(out, []draw.Span{st.Text(line)})
	}
	return out
}
