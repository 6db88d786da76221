package client

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
)

// actionShown is the time for which the notices show an action of the controller.
const actionShown = 30 * time.Second

// cachesJudged is how old the frontends' answers about caches may be to be judged.
const cachesJudged = 10 * time.Second

// notices returns the lines below the panes, the most serious first.
func notices(s cluster.Snapshot, noBus bool) []string {
	var out []string
	if noBus {
		out = append(out, "no event plane configured: load is polled from the workers, events are not shown")
	} else if !s.Fresh.NATSOK {
		out = append(out, "nats unreachable: load is polled from the workers, events are not shown")
	}
	for _, w := range s.Workers {
		if w.Reason != "" && (w.State == cluster.StateFailed || w.State == cluster.StateDegraded || w.State == cluster.StatePending || w.State == cluster.StateLost || strings.HasPrefix(w.Reason, goesOn)) {
			text := w.Name + ": " + w.Reason
			if left := w.RetryAt.Sub(s.Time); w.State == cluster.StateFailed && left > 0 {
				text += fmt.Sprintf(" (failed %d times, next try in %s)", w.Restarts, left.Round(time.Second))
			}
			out = append(out, text)
		}
	}
	if s.Caches != nil && s.Time.Sub(s.Caches.At) < cachesJudged {
		for _, c := range s.Caches.Workers {
			out = append(out, c.Problems(s.Time)...)
		}
	}
	for _, a := range s.Actions {
		if s.Time.Sub(a.Time) > actionShown {
			break
		}
		out = append(out, "controller: "+a.Message)
	}
	return slices.Clip(out)
}
