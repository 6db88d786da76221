package settle

import (
	"fmt"
	"time"

	"github.com/dynctl/dynctl/internal/cli/fleet"
	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/cli/progress"
	"github.com/dynctl/dynctl/internal/cluster"
)

// Ledger remembers when things appeared and when they were done, so that rows keep
// their order and their times.
type Ledger struct {
	start time.Time
	Order []string
	times map[string]*lifetime
}

type lifetime struct{ since, done time.Time }

// NewLedger returns an empty ledger of an operation that began at start.
func NewLedger(start time.Time) *Ledger {
	return &Ledger{start: start, times: map[string]*lifetime{}}
}

// Note records how an item stands and returns how long that took so far.
func (l *Ledger) Note(item string, done bool, now time.Time) time.Duration {
	t := l.times[item]
	if t == nil {
		t = &lifetime{since: now}
		l.times[item] = t
		l.Order = append(l.Order, item)
	}
	switch {
	case !done:
		t.done = time.Time{}
		return now.Sub(t.since)
	case t.done.IsZero():
		t.done = now
	}
	return t.done.Sub(t.since)
}

// Worker is the row of a worker that shall serve.
func (l *Ledger) Worker(w cluster.Worker, nodes []cluster.Node, done bool, now time.Time) progress.Row {
	device := human.Place(nodes, w)
	word := string(w.State)
	r := progress.Row{Item: w.Name, Kind: string(w.Role), State: progress.Running, Took: l.Note(w.Name, done, now)}
	switch {
	case done:
		r.State, r.Took = progress.Done, max(r.Took, time.Millisecond)
		if w.Stats.KVTotal > 0 {
			r.Detail = human.Commas(w.Stats.KVTotal) + " KV blocks"
		}
		if w.State == cluster.StateDegraded {
			r.Detail = w.Reason
		}
	case w.State.Serving():
		word, r.Detail = "changing", "serves as before until it is its turn"
	case w.State == cluster.StateFailed, w.State == cluster.StateLost:
		r.State, r.Detail = progress.Failed, w.Reason
		if left := w.RetryAt.Sub(now); left > 0 {
			r.After = "starts again in " + human.Age(left)
		}
	case w.State == cluster.StatePending:
		r.State, r.Took, r.Detail = progress.Waiting, 0, w.Reason
		if w.Reason == "" {
			r.Detail = "for its node"
		}
	case w.State == cluster.StateLoading && w.Progress > 0:
		share := w.Progress
		r.Share, r.After = &share, fmt.Sprintf("%d%%", int(share*100))
	default:
		r.Detail = w.Reason
	}
	r.Word = word
	r.Cells = []string{w.Name, string(w.Role), device, word}
	r.Line = fmt.Sprintf("%s %s %s", w.Name, w.Role, word)
	if device != "" {
		r.Line = fmt.Sprintf("%s %s %s %s", w.Name, w.Role, device, word)
	}
	if w.Reason != "" && !done {
		r.Line += ": " + w.Reason
	}
	return r
}

// Leaving is the row of a worker that shall go.
func (l *Ledger) Leaving(w cluster.Worker, nodes []cluster.Node, gone bool, now time.Time) progress.Row {
	r := progress.Row{Item: w.Name, Kind: string(w.Role), State: progress.Running, Word: "leaving", Took: l.Note(w.Name, gone, now)}
	r.Line = w.Name + " " + string(w.Role) + " "
	switch d := w.Drain; {
	case gone:
		r.State, r.Word, r.Took = progress.Done, "removed", max(r.Took, time.Millisecond)
		r.Line += r.Word
	case w.State == cluster.StateDraining && d != nil && d.Left > 0:
		r.Word, r.Detail = "draining", fleet.DrainText(w)
		r.Line += r.Word + " " + r.Detail
	case w.State == cluster.StateDraining && d != nil:
		r.Word, r.Detail = "draining", fleet.DrainText(w)
		r.Line += r.Word
	default:
		r.Line += r.Word
	}
	r.Cells = []string{w.Name, string(w.Role), human.Place(nodes, w), r.Word}
	return r
}
