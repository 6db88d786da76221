package down

import (
	"fmt"

	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/cli/launch"
	"github.com/dynctl/dynctl/internal/cli/progress"
	"github.com/dynctl/dynctl/internal/cli/settle"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
)

// screen shows what down waits for: workers first, then processes.
type screen struct {
	d     *downturn
	show  progress.Display
	led   *settle.Ledger
	known map[string]cluster.Worker
	rows  []progress.Row // of the workers, newest
	procs map[string]progress.Row
	order []string
}

func newDownScreen(d *downturn, show progress.Display) screen {
	return screen{d: d, show: show, led: settle.NewLedger(d.begin), known: map[string]cluster.Worker{}, procs: map[string]progress.Row{}}
}

// next begins with the workers of another namespace, which may have the same names.
func (s *screen) next() {
	s.led, s.known, s.rows = settle.NewLedger(s.d.session.Out.Now()), map[string]cluster.Worker{}, nil
}

func (s *screen) close() { s.show.Close() }

// workers shows those that are left.
func (s *screen) workers(v client.View) {
	now := s.d.session.Out.Now()
	st := settle.Standing{Leaving: v.Workers()}
	s.rows = st.Rows(s.led, v.Nodes, s.known, now)
	s.frame()
}

// processes shows how far they are.
func (s *screen) processes(endings []launch.Ending) {
	for _, e := range endings {
		r := progress.Row{Item: e.Node.Name, Kind: "dynamod", Word: "ending", State: progress.Running, Took: e.Took, Detail: fmt.Sprintf("process %d", e.PID)}
		switch {
		case e.Gone && e.Killed:
			r.Word, r.State, r.Detail = "killed", progress.Failed, fmt.Sprintf("process %d did not end in time", e.PID)
		case e.Gone:
			r.Word, r.State = "gone", progress.Done
		case e.Killed:
			r.Word = "killed"
		case e.Hurried:
			r.Detail = fmt.Sprintf("process %d was asked to stop at once", e.PID)
		}
		r.Cells = []string{r.Item, r.Kind, "", r.Word}
		r.Line = fmt.Sprintf("%s dynamod %s", r.Item, r.Word)
		if _, seen := s.procs[r.Item]; !seen {
			s.order = append(s.order, r.Item)
		}
		s.procs[r.Item] = r
	}
	s.frame()
}

func (s *screen) frame() {
	left := s.d.deadline.Sub(s.d.session.Out.Now())
	out := progress.Screen{
		Operation: "down", Subject: s.d.session.Config.Cluster, Title: s.d.session.Config.Cluster + "  stopping",
		Rows: append([]progress.Row{}, s.rows...),
	}
	if left > 0 {
		out.Title += "   deadline in " + human.Clock(left)
	}
	if len(s.order) == 0 {
		out.Footer = "ctrl-c stops watching only."
	}
	for _, name := range s.order {
		out.Rows = append(out.Rows, s.procs[name])
	}
	s.show.Show(out)
}
