package pane

import (
	"fmt"
	"strings"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/tui/cells"
	"github.com/dynctl/dynctl/internal/tui/detail"
	"github.com/dynctl/dynctl/internal/tui/draw"
	"github.com/dynctl/dynctl/internal/tui/moment"
	"github.com/dynctl/dynctl/internal/tui/plain"
	"github.com/dynctl/dynctl/internal/tui/table"
)

// planner is the pane of the planner: its newest decision with the figures behind it, the rates, and
// below them the decisions that said something new.
type planner struct {
	list
	head int // rows above those of the list
}

// Planner returns the pane of the planner.
func Planner(m *moment.Moment) Pane {
	p := &planner{list: list{m: m, none: "nothing has changed since this screen was opened"}}
	p.columns, p.rows = p.cols, table.NewList(p.source())
	return p
}

func (p *planner) changes() []cluster.PlannerChange {
	if v := p.m.Planner(); v != nil && p.m.Planning().Decided {
		return v.Changes
	}
	return nil
}

func (p *planner) at(i int) *cluster.PlannerChange { return &p.changes()[i] }

func (p *planner) time(i int) string { return p.at(i).Time.In(p.m.Location).Format(time.TimeOnly) }

func (p *planner) cols() []table.Column {
	whyW, whatW := 8, 20
	for i := range p.changes() {
		whyW, whatW = max(whyW, cells.Width(p.at(i).Why)), max(whatW, cells.Width(p.at(i).Text))
	}
	return []table.Column{
		{Title: "TIME", Width: 8, Cell: func(i, _ int) []draw.Span { return []draw.Span{draw.Dim.Text(p.time(i))} }},
		{Title: "WHY", Width: whyW, Help: "cause of a change, or the reason why there is none", Cell: func(i, _ int) []draw.Span { return []draw.Span{draw.Strong.Text(p.at(i).Why)} }},
		{Title: "WHAT", Width: 20, Full: whatW, Leave: 1, Cell: func(i, w int) []draw.Span {
			return []draw.Span{draw.Plain.Text(cells.Clip(p.at(i).Text, w, p.m.Glyphs.More))}
		}},
	}
}

func (p *planner) source() table.Source {
	return table.Source{
		N:      func() int { return len(p.changes()) },
		Newest: true,
		Key:    func(i int) table.Key { return table.Key{Name: p.at(i).Why, N: uint64(p.at(i).Time.UnixNano())} },
		Text:   func(i int) string { return strings.Join([]string{p.time(i), p.at(i).Why, p.at(i).Text}, " ") },
	}
}

// Size gives the list what the lines above it leave.
func (p *planner) Size(width, height int) {
	p.head = len(p.lines(width, height))
	p.list.Size(width, max(height-p.head, 0))
}

// leastList is the number of rows below which the changes are left out.
const leastList = 3

func (p *planner) Draw(a draw.Area, focused bool) {
	lines := p.lines(a.W(), a.H())
	for y, line := range lines {
		row := a
		if y > 0 && p.m.Planning().Old {
			row = a.Marked(draw.MarkStale)
		}
		row.Spans(0, y, a.W(), line)
	}
	if rest := a.H() - len(lines); rest >= leastList && p.m.Planning().Decided {
		p.list.Draw(a.Sub(draw.Rect{Y: len(lines), W: a.W(), H: rest}), focused)
	}
}

// lines are what stands above the changes, in a room of that size.
func (p *planner) lines(width, height int) [][]draw.Span {
	v, state := p.m.Planner(), p.m.Planning()
	first := draw.Part{Spans: []draw.Span{state.Style.Text(state.Glyph + " " + state.Word)}}
	why := cells.Fold(state.Why, max(width, 10))
	if !state.Decided {
		out := [][]draw.Span{first.Spans}
		for _, line := range why {
			out = append(out, []draw.Span{draw.Plain.Text(line)})
		}
		return append(out, p.others(width, height-len(out))...)
	}
	if v.Pool != "" {
		first.Spans = append(first.Spans, draw.Plain.Text("  "+cluster.PoolWords(v.Pool)))
	}
	out := [][]draw.Span{figures(width, first,
		draw.Part{Leave: 4, Spans: []draw.Span{draw.Strong.Text(moment.PlansText(v))}},
		draw.Part{Leave: 3, Spans: []draw.Span{draw.Plain.Text(v.Why())}},
		figure(2, "mode", cells.OrUnknown(v.Mode)),
		figure(1, "by", v.Node+", "+cells.Age(max(p.m.At().Sub(v.HeardAt), 0))+" ago"),
	)}
	room := 1
	if height >= 16 {
		room = 2
	}
	if len(why) > room {
		why = append(why[:room-1:room-1], cells.Clip(strings.Join(why[room-1:], " "), width, p.m.Glyphs.More))
	}
	for _, line := range why {
		out = append(out, []draw.Span{draw.Plain.Text(line)})
	}
	out = append(out, p.others(width, height/2-len(out))...)
	blank := func() {
		if height >= 16 {
			out = append(out, nil)
		}
	}
	if height >= 7 {
		parts := []draw.Part{figure(3, "goal", cells.OrUnknown(v.Target.Goal)), figure(2, "devices at most", cells.Commas(v.Target.Devices)), figure(1, "wait for prefill", cells.IntOr(v.Queued))}
		if v.BestEffort {
			parts = append(parts, draw.Part{Spans: []draw.Span{draw.Warn.Text("no plan holds the target")}})
		}
		out = append(out, figures(width, parts...))
	}
	blank()
	out = append(out, p.figuresTable(width)...)
	blank()
	if height >= 10 {
		out = append(out, p.rates(width, 1+height/22)...)
	}
	blank()
	return out
}

// others has a line for each further pool, as far as there is room for them.
func (p *planner) others(width, room int) (out [][]draw.Span) {
	all := p.m.OtherPlanners()
	for i := range all {
		if rest := len(all) - i; len(out)+1 >= room && rest > 1 {
			if room > 0 {
				out = append(out, []draw.Span{draw.Dim.Text(fmt.Sprintf("%d more pools: enter", rest))})
			}
			return out
		}
		v := &all[i]
		state := p.m.PlanningOf(v)
		out = append(out, figures(width,
			draw.Part{Spans: []draw.Span{state.Style.Text(state.Glyph + " " + cluster.PoolWords(v.Pool))}},
			draw.Part{Leave: 4, Spans: []draw.Span{draw.Strong.Text(moment.PlansText(v))}},
			draw.Part{Leave: 3, Spans: []draw.Span{draw.Plain.Text(v.Why())}},
			draw.Part{Leave: 2, Spans: []draw.Span{draw.Plain.Text(state.Word)}},
			figure(1, "req/s", rate(v.Observed.Rate)),
		))
	}
	return out
}

// figuresTable has the target, what was observed and what is predicted, one below the other.
func (p *planner) figuresTable(width int) (out [][]draw.Span) {
	const name = 14
	v := p.m.Planner()
	cell := cells.Clamp((width-name)/6, 7, 12)
	row := func(title string, st draw.Style, values ...string) {
		line := []draw.Span{draw.Dim.Text(cells.PadRight(title, name))}
		for _, text := range values {
			line = append(line, st.Text(cells.PadLeft(text, cell)))
		}
		out = append(out, line)
	}
	ms := ""
	if cell >= 9 {
		ms = " ms"
	}
	row("", draw.Heading, "REQ/S", "TTFT"+ms, "ITL"+ms, "PROMPT", "ANSWER", "MISS%")
	t := v.Target
	allowed := cells.Unknown
	if t.Percentile > 0 {
		allowed = fmt.Sprintf("%.3g", 100*(1-t.Percentile))
	}
	none := cells.Unknown
	row(moment.TargetName("target", t), draw.Plain, none, cells.Millis(t.TTFT), cells.Millis(t.ITL), none, none, allowed)
	of := func(title string, f cluster.PlannerFigures) {
		row(title, draw.Plain, rate(f.Rate), cells.Millis(f.TTFT), cells.Millis(f.ITL), cells.CompactOr(f.ISL), cells.CompactOr(f.OSL), cells.Percent(f.Miss))
	}
	of("observed mean", v.Observed)
	of(moment.TargetName("predicted", t), v.Predicted)
	return out
}

// rate prints requests a second.
func rate(f *float64) string {
	if f == nil {
		return cells.Unknown
	}
	return strings.TrimSuffix(cells.PerSecond(*f), "/s")
}

// rates draws the observed and the forecast rate against the same top.
func (p *planner) rates(width, height int) (out [][]draw.Span) {
	const name = 14
	v := p.m.Planner()
	top, some := draw.Peak(append(append([]*float64{}, v.Rates...), v.Forecasts...))
	if !some {
		return [][]draw.Span{{draw.Dim.Text("no rates yet")}}
	}
	scale := "  max " + cells.PerSecond(top)
	room := max(width-name-max(cells.Width(scale), 10), 1)
	chart := func(title, note string, samples []*float64) {
		for y, line := range draw.Sparkline(samples, room, height, top, p.m.Glyphs.Spark) {
			if y < height-1 {
				out = append(out, []draw.Span{draw.Plain.Text(cells.PadRight("", name)), draw.Focused.Text(line)})
				continue
			}
			out = append(out, []draw.Span{draw.Dim.Text(cells.PadRight(title, name)), draw.Focused.Text(line), draw.Dim.Text(note)})
		}
	}
	chart("observed", scale, v.Rates)
	chart("forecast", "  last "+detail.PlannedSpan(v, min(len(v.Rates), room)), v.Forecasts)
	return out
}

// Heading says when the planner decides again.
func (p *planner) Heading() (title, note, below string) {
	_, note, below = p.list.Heading()
	if next := p.m.NextLook(); next != "" {
		note = strings.TrimSpace(note + "   " + next)
	}
	return "", note, below
}

// Help explains what the words of the figures mean.
func (p *planner) Help() []Term {
	return append([]Term{
		{"observed mean", "the last window: requests that arrived, means of those that finished"},
		{"predicted", "the highest rate in the look-ahead, and how the proposed plan does then"},
		{"PROMPT ANSWER", "tokens; predicted prompts are without those in a prefix cache"},
		{"MISS%", "requests that miss TTFT or ITL: allowed, and expected"},
	}, p.list.Help()...)
}

func (p *planner) Subject() detail.Subject {
	return detail.Subject{Title: "planner", Value: p.m.Planner(), NoWorker: chooseWorker, Open: detail.Planner(p.m)}
}

func (p *planner) Table(o plain.Options) plain.Table {
	t := plain.New("planner", "WHAT", "VALUE")
	state := p.m.Planning()
	t.Add("state", state.Word)
	t.Add("why", cells.OrUnknown(state.Why))
	v := p.m.Planner()
	if v == nil || !state.Decided {
		return t
	}
	if v.Pool != "" {
		t.Add("pool", v.Pool)
	}
	t.Add("mode", cells.OrUnknown(v.Mode))
	t.Add("decided by", v.Node)
	t.Add("decided at", o.Time(v.Time))
	t.Add("reason", v.Why())
	for _, x := range []struct {
		name string
		plan cluster.PlannerPlan
	}{{"current", v.Current}, {"proposed", v.Proposal}} {
		t.Add(x.name+" prefill workers", fmt.Sprint(x.plan.Prefill))
		t.Add(x.name+" decode workers", fmt.Sprint(x.plan.Decode))
	}
	t.Add("goal", v.Target.Goal)
	t.Add("devices at most", fmt.Sprint(v.Target.Devices))
	t.Add("target TTFT ms", o.Float(v.Target.TTFT, cells.Millis))
	t.Add("target ITL ms", o.Float(v.Target.ITL, cells.Millis))
	for _, x := range []struct {
		name string
		f    cluster.PlannerFigures
	}{{"observed", v.Observed}, {"predicted", v.Predicted}} {
		t.Add(x.name+" requests/s", o.Float(x.f.Rate, rate))
		t.Add(x.name+" TTFT ms", o.Float(x.f.TTFT, cells.Millis))
		t.Add(x.name+" ITL ms", o.Float(x.f.ITL, cells.Millis))
		t.Add(x.name+" prompt tokens", o.Float(x.f.ISL, cells.CompactOr))
		t.Add(x.name+" output tokens", o.Float(x.f.OSL, cells.CompactOr))
	}
	t.Add("predicted miss%", cells.Percent(v.Predicted.Miss))
	for _, v := range p.m.OtherPlanners() {
		name := cluster.PoolWords(v.Pool)
		t.Add(name, p.m.PlanningOf(&v).Word)
		t.Add(name+" workers", moment.PlansText(&v))
		t.Add(name+" reason", v.Why())
		t.Add(name+" requests/s", o.Float(v.Observed.Rate, rate))
	}
	return t
}
