package drain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dynctl/dynctl/internal/cli/fleet"
	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/cli/progress"
	"github.com/dynctl/dynctl/internal/cluster"
)

// drainStage is one line of the screen of a drain, for one or two of its steps.
type drainStage struct {
	item, title string
	steps       []cluster.DrainStep
}

// drainStages are those of a worker of the role.
func drainStages(r cluster.Role) []drainStage {
	if !r.HoldsKV() {
		return []drainStage{
			{"stop-new-images", "stop new images", []cluster.DrainStep{cluster.DrainDiscovery, cluster.DrainAdmission}},
			{"finish-images", "finish images", []cluster.DrainStep{cluster.DrainIncoming, cluster.DrainSequences}},
			{"outgoing-embeddings", "outgoing embeddings", []cluster.DrainStep{cluster.DrainOutgoing}},
			{"leave-cluster", "leave cluster", []cluster.DrainStep{cluster.DrainLease}},
		}
	}
	return []drainStage{
		{"stop-new-requests", "stop new requests", []cluster.DrainStep{cluster.DrainDiscovery, cluster.DrainAdmission}},
		{"incoming-kv", "incoming KV", []cluster.DrainStep{cluster.DrainIncoming}},
		{"finish-sequences", "finish sequences", []cluster.DrainStep{cluster.DrainSequences}},
		{"outgoing-kv", "outgoing KV", []cluster.DrainStep{cluster.DrainOutgoing}},
		{"leave-cluster", "leave cluster", []cluster.DrainStep{cluster.DrainLease}},
	}
}

// view is the screen of a drain.
type view struct{ *drainer }

// screen shows how far the drain is.
func (d view) screen(now time.Time, over bool) progress.Screen {
	s := progress.Screen{
		Operation: "drain", Subject: d.name,
		Footer: fmt.Sprintf("ctrl-c stops watching only.  undo: dynctl resume %s   force: --deadline 0 --yes", d.name),
	}
	if d.level > 0 {
		s.Operation, s.Footer = "sleep", "ctrl-c stops watching only.  undo: dynctl wake "+d.name
	}
	state := "draining"
	switch {
	case over && d.level > 0:
		state, s.Footer = "sleeping", ""
	case over:
		state, s.Footer = "drained", ""
	case d.replace && !d.obeyed:
		state = "waits for a successor"
	}
	s.Title = strings.Join(slices.DeleteFunc([]string{d.name, string(d.worker.Role), human.Place(d.nodes, d.worker), state},
		func(p string) bool { return p == "" }), "  ")
	switch {
	case !d.stale.IsZero():
		s.Title += fmt.Sprintf("   STALE %s: store unreachable", human.Age(now.Sub(d.stale)))
	case !over && !d.deadline.IsZero():
		s.Title += "   deadline in " + human.Clock(d.deadline.Sub(now))
	}
	if d.replace {
		s.Rows = append(s.Rows, d.successorRow(now))
		if !d.obeyed && !over {
			return s
		}
	}
	for _, st := range drainStages(d.worker.Role) {
		if d.level > 0 && st.item == "leave-cluster" {
			st.item, st.title = "sleep", "put the server to sleep"
		}
		s.Rows = append(s.Rows, d.row(st, now, over))
	}
	return s
}

// row shows one stage.
func (d view) row(st drainStage, now time.Time, over bool) progress.Row {
	at := -1 // the present step
	if d.seen != nil {
		at = slices.Index(cluster.DrainSteps, d.seen.Step)
	}
	first, last := slices.Index(cluster.DrainSteps, st.steps[0]), slices.Index(cluster.DrainSteps, st.steps[len(st.steps)-1])
	r := progress.Row{Item: st.item, Cells: []string{st.title}, Word: "waiting"}
	switch {
	case over || at > last:
		r.State, r.Word = progress.Done, "done"
	case at >= first || at < 0 && first == 0:
		r.State, r.Word = progress.Running, "running"
	}
	if r.State == progress.Done {
		r.Took = d.stageTime(st, last, now)
	}
	d.describe(&r, now)
	if r.State != progress.Waiting {
		r.Line = d.name + " " + st.item + " " + r.Word
		if slices.Contains(st.steps, cluster.DrainSequences) && d.seen != nil && r.State == progress.Running {
			r.Line = fmt.Sprintf("%s %s %d/%d", d.name, st.item, d.seen.Left, max(d.seen.Sequences, d.seen.Left))
		}
		if st.steps[0] == cluster.DrainDiscovery && d.seen != nil && d.seen.Routers > 0 && r.State == progress.Done {
			r.Line += ": " + r.Detail
		}
	}
	return r
}

// successorRow shows the worker that starts first.
func (d view) successorRow(now time.Time) progress.Row {
	r := progress.Row{Item: "start-successor", Cells: []string{"start a successor"}, State: progress.Running, Word: "running", Line: d.name + " start-successor running"}
	switch w := d.successor; {
	case w.Name == "":
		r.Detail = "waits for the controller"
	case d.obeyed:
		r.State, r.Word, r.Detail = progress.Done, "done", w.Name+" serves"
		r.Line = d.name + " start-successor done: " + w.Name
	default:
		r.Detail, r.Took = w.Name+" "+human.State(w), now.Sub(d.ordered)
		r.Line = d.name + " start-successor " + w.Name + " " + string(w.State)
	}
	return r
}

// stageTime returns the duration of a stage, as far as it was watched: until the first
// later step was seen.
func (d view) stageTime(st drainStage, last int, now time.Time) time.Duration {
	begin, ok := d.steps[st.steps[0]]
	if !ok {
		return 0
	}
	for _, later := range cluster.DrainSteps[last+1:] {
		if t, ok := d.steps[later]; ok {
			return t.Sub(begin)
		}
	}
	return now.Sub(begin)
}

// describe says what a stage waits for.
func (d view) describe(r *progress.Row, now time.Time) {
	s := d.seen
	open := r.State != progress.Done
	switch r.Item {
	case "stop-new-requests", "stop-new-images":
		switch {
		case s == nil:
			r.Detail = "waits for its agent to take the order"
		case open && s.Step == cluster.DrainAdmission:
			r.Detail = "work that was pulled is admitted"
		case s.Routers > 0:
			r.Detail = fleet.RoutersText(s, d.nodes)
		case open:
			r.Detail = "left discovery, routers take notice"
		default:
			r.Detail = "left discovery, admission closed"
		}
	case "incoming-kv":
		if s != nil && open {
			r.Detail = human.Plural(s.Incoming, "transfer") + " pending"
		} else if !open {
			r.Detail = "0 transfers pending"
		}
	case "finish-sequences", "finish-images":
		d.sequences(r, now)
	case "outgoing-kv", "outgoing-embeddings":
		r.Detail = "none held for others"
		if s != nil && open && s.Outgoing > 0 {
			r.Detail = fmt.Sprintf("%d held for others", s.Outgoing)
		}
	case "leave-cluster":
		r.Detail = "revoke lease, deregister"
	case "sleep":
		r.Detail = fmt.Sprintf("level %d", d.level)
	}
}

// sequences shows how many still run, and how long they may take once some have
// finished.
func (d view) sequences(r *progress.Row, now time.Time) {
	s := d.seen
	if s == nil {
		return
	}
	total := max(s.Sequences, s.Left)
	if r.State == progress.Done {
		r.Detail = s.Ends()
		return
	}
	r.Detail = fmt.Sprintf("%d of %d left", s.Left, total)
	if r.State != progress.Running || total == 0 {
		return
	}
	share := float64(total-s.Left) / float64(total)
	r.Share = &share
	if done := total - s.Left; done > 0 {
		elapsed := now.Sub(d.ordered)
		r.After = "~" + human.Clock(time.Duration(float64(elapsed)/float64(done)*float64(s.Left)))
	}
	for i := 0; i < len(s.Open); i += 3 {
		var parts []string
		for _, q := range s.Open[i:min(i+3, len(s.Open))] {
			parts = append(parts, openText(d.worker.Role, q))
		}
		r.More = append(r.More, strings.Join(parts, "   "))
	}
}
