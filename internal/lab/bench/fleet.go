package bench

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dynctl/dynctl/internal/model"
)

// ScaleOptions selects what the section scale measures. Zero fields have the defaults of
// the run's size.
type ScaleOptions struct {
	// Axes names the axes to measure; nil means all. See [ScaleAxes].
	Axes []string
	// Points are the points of each axis, by its name.
	Points map[string][]int
	// Workers is their number on the other axes.
	Workers int
	// Processes is how many processes share the nodes of a fleet at most.
	Processes int
	// KVBlocks is the number of KV blocks of each worker.
	KVBlocks int
	// Idle is how long a fleet is measured while it is idle, and Timeout limits a point.
	Idle, Timeout time.Duration
	// Rounds is how often each point is measured.
	Rounds int
}

// Names of the axes.
const (
	axisWorkers   = "workers"
	axisFrontends = "frontends"
	axisNodes     = "nodes"
)

// ScaleAxes returns the names of the axes in their order.
func ScaleAxes() []string { return []string{axisWorkers, axisFrontends, axisNodes} }

// fleetScale holds the sizes of the section scale.
type fleetScale struct {
	axes      []string
	points    map[string][]int
	workers   int // on the other axes
	processes int
	blocks    int // KV blocks of a worker
	settle    time.Duration
	idle      time.Duration // of measuring an idle fleet
	requests  int           // of one token, one after the other
	changes   int           // workers that appear and leave
	orders    int           // workers that are replaced
	timeout   time.Duration // of a point
	turns     turns         // of an axis
}

// extrapolateTo is the number of workers that laws are extrapolated to.
const extrapolateTo = 10_000

// Limits of options: beyond them one machine measures itself.
const (
	mostWorkers   = 5000
	mostNodes     = 64
	mostProcesses = 64
)

// with returns the sizes with what the options replace.
func (sc fleetScale) with(o ScaleOptions) (fleetScale, error) {
	if o.Axes != nil {
		sc.axes = o.Axes
	}
	for _, a := range sc.axes {
		if !slices.Contains(ScaleAxes(), a) {
			return sc, fmt.Errorf("%w: axis %q is not one of %s", ErrChoice, a, strings.Join(ScaleAxes(), ", "))
		}
	}
	points := map[string][]int{}
	for _, a := range ScaleAxes() {
		points[a] = sc.points[a]
		if p := o.Points[a]; len(p) > 0 {
			points[a] = slices.Compact(slices.Sorted(slices.Values(p)))
		}
		most := mostNodes
		if a == axisWorkers {
			most = mostWorkers
		}
		if low, high := slices.Min(points[a]), slices.Max(points[a]); low < 1 || high > most {
			return sc, fmt.Errorf("%w: %s are from 1 to %d", ErrChoice, a, most)
		}
	}
	sc.points = points
	for _, n := range []struct {
		name    string
		chosen  int
		size    *int
		largest int
	}{
		{"fixed workers", o.Workers, &sc.workers, mostWorkers}, {"processes", o.Processes, &sc.processes, mostProcesses},
		{"KV blocks", o.KVBlocks, &sc.blocks, 1 << 20}, {"rounds", o.Rounds, &sc.turns.rounds, 100},
	} {
		if n.chosen < 0 || n.chosen > n.largest {
			return sc, fmt.Errorf("%w: %s are from 1 to %d", ErrChoice, n.name, n.largest)
		}
		if n.chosen > 0 {
			*n.size = n.chosen
		}
	}
	if o.Idle < 0 || o.Timeout < 0 {
		return sc, fmt.Errorf("%w: times are not negative", ErrChoice)
	}
	if o.Idle > 0 {
		sc.idle = o.Idle
	}
	if o.Timeout > 0 {
		sc.timeout = o.Timeout
	}
	return sc, nil
}

// fleet returns the fleet at a point of an axis. What is not on the axis stays the same.
func (sc fleetScale) fleet(axis string, at int) fleetSpec {
	spec := fleetSpec{workers: sc.workers, frontends: 1, nodes: sc.processes}
	switch axis {
	case axisWorkers:
		spec.workers = at
	case axisFrontends:
		spec.frontends, spec.nodes = at, max(spec.nodes, slices.Max(sc.points[axis])) // a frontend needs a node
	case axisNodes:
		spec.nodes = at
	}
	spec.processes = min(sc.processes, spec.nodes)
	return spec
}

// about describes what is fixed on an axis.
func (sc fleetScale) about(axis string) string {
	spec := sc.fleet(axis, sc.points[axis][0])
	switch axis {
	case axisWorkers:
		return fmt.Sprintf("%s, %s.", plural(spec.frontends, "frontend"), plural(spec.nodes, "node"))
	case axisFrontends:
		return fmt.Sprintf("%s, %s.", plural(spec.workers, "worker"), plural(spec.nodes, "node"))
	}
	return fmt.Sprintf("%s, %s.", plural(spec.workers, "worker"), plural(spec.frontends, "frontend"))
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// measureScale measures what the control plane costs for fleets of several sizes.
func measureScale(ctx context.Context, s *session) (Section, error) {
	sec := Section{Title: "Scale"}
	sc, err := s.scale.fleet.with(s.opts.Scale)
	if err != nil {
		return sec, err
	}
	s.scale.fleet = sc
	sec.About = fmt.Sprintf("Each point is a fleet of its own: %s, with embedded etcd and NATS in the first, decode workers\n"+
		"on a mock engine with %d KV blocks each, and the default policy. It is started, measured and killed. Processor time, memory,\n"+
		"goroutines and files are those of all its processes together, not of the client. An idle fleet is measured for %s; what work\n"+
		"costs is the processor time beyond that of an idle fleet.", map[bool]string{true: "one process", false: fmt.Sprintf("up to %d processes", sc.processes)}[sc.processes == 1], sc.blocks, sc.idle)
	if len(s.opts.Child) == 0 {
		return sec, errNoChild
	}
	dir, err := model.Builtin(s.home)
	if err != nil {
		return sec, err
	}
	p, err := newPathBench(s, dir)
	if err != nil {
		return sec, err
	}
	defer p.close()
	for _, axis := range sc.axes {
		if err := p.axis(ctx, &sec, axis); err != nil {
			return sec, err
		}
	}
	sec.Notes = append(sec.Notes, quadratic(sec.Fits)...)
	return sec, nil
}

// axis measures the points of one axis. A point that fails is in the section's failures.
func (p *pathBench) axis(ctx context.Context, sec *Section, axis string) error {
	sc := p.scale.fleet
	var cases []Case
	at := map[string]int{}
	run := 0
	for _, n := range sc.points[axis] {
		name := strconv.Itoa(n)
		at[name] = n
		cases = append(cases, Case{name, func(outer context.Context) (Sample, error) {
			run++
			p.say("%s: %d", axis, n)
			sample, err := p.point(outer, fmt.Sprintf("%s-%d", axis, run), sc.fleet(axis, n))
			if err != nil && outer.Err() == nil {
				p.say("%s: %d: %v", axis, n, err)
				sec.Failures = append(sec.Failures, fmt.Sprintf("%s %s: %v", group(name), axis, err))
				err = nil
			}
			return sample, err
		}})
	}
	res, err := p.takeTurns(ctx, axis, sc.turns, cases)
	if err != nil {
		return err
	}
	t := res.table("Over "+axis, sc.about(axis), fleetColumns()).transposed()
	to := 0
	if axis == axisWorkers {
		to = extrapolateTo
	}
	fits := t.fits(axis, at, to)
	sec.Tables, sec.Fits = append(sec.Tables, t), append(sec.Fits, fits...)
	plot := Plot{Name: axis, Title: "Over " + axis + ": " + sc.about(axis)}
	for _, row := range t.Rows {
		panel := Panel{Title: row.Name}
		for _, c := range t.Columns {
			if f, ok := row.Figures[c.Key]; ok {
				panel.Points = append(panel.Points, PanelPoint{float64(at[c.Key]), f})
			}
		}
		if i := slices.IndexFunc(fits, func(f Fit) bool { return f.Figure == row.Name }); i >= 0 {
			panel.Law = fits[i].Law
		}
		plot.Panels = append(plot.Panels, panel)
	}
	sec.Plots = append(sec.Plots, plot)
	return nil
}

// quadratic names the figures in which a quadratic term dominates.
func quadratic(fits []Fit) []string {
	var names []string
	for _, f := range fits {
		if f.Dominant == termQuadratic {
			names = append(names, fmt.Sprintf("%s over %s", f.Figure, f.Axis))
		}
	}
	switch {
	case len(fits) == 0:
		return nil
	case len(names) == 0:
		return []string{"No figure is dominated by a quadratic term."}
	}
	return []string{"Dominated by a quadratic term: " + strings.Join(names, "; ") + "."}
}
