package recording

import (
	"reflect"
	"slices"

	"github.com/dynctl/dynctl/internal/cluster"
)

// line is the content of one line of a recording.
type line struct {
	cluster.Snapshot
	// SincePrevious is set when KV events and router decisions are only those that
	// the line before did not have.
	SincePrevious bool `json:"since_previous,omitempty"`
}

// The newest of each kind come first; a snapshot holds at most this many.
const keepRows = 200

// decisionID says which decision replaces which: the frontend tells a decision again
// once it knows where the prompt was computed.
type decisionID struct {
	request string
	phase   cluster.Role
}

func idOf(d *cluster.RouterDecision) decisionID { return decisionID{d.RequestID, d.Phase} }

// eventID identifies a KV event.
type eventID struct {
	worker cluster.InstanceID
	n      uint64
}

func eventOf(e *cluster.KVEvent) eventID { return eventID{e.WorkerID, e.EventID} }

func sameDecision(a, b *cluster.RouterDecision) bool {
	return idOf(a) == idOf(b) && a.Time.Equal(b.Time) && a.Chosen == b.Chosen &&
		a.Prefill == b.Prefill && a.PrefillWhy == b.PrefillWhy && a.PrefillWay == b.PrefillWay && a.DecodeNS == b.DecodeNS &&
		slices.EqualFunc(a.Candidates, b.Candidates, func(a, b cluster.RouteCandidate) bool { return reflect.DeepEqual(a, b) })
}

// shorten returns the line that next makes after prev, with the rows that prev has left
// out. ok is false when merging would not give next again; then it is written whole.
func shorten(prev, next cluster.Snapshot) (l line, ok bool) {
	l = line{Snapshot: next, SincePrevious: true}
	events := map[eventID]bool{}
	for i := range prev.Events {
		events[eventOf(&prev.Events[i])] = true
	}
	l.Events = []cluster.KVEvent{}
	for i := range next.Events {
		if !events[eventOf(&next.Events[i])] {
			l.Events = append(l.Events, next.Events[i])
		}
	}
	decisions := map[decisionID]*cluster.RouterDecision{}
	for i := range prev.Decisions {
		decisions[idOf(&prev.Decisions[i])] = &prev.Decisions[i]
	}
	l.Decisions = []cluster.RouterDecision{}
	for i := range next.Decisions {
		if old := decisions[idOf(&next.Decisions[i])]; old == nil || !sameDecision(old, &next.Decisions[i]) {
			l.Decisions = append(l.Decisions, next.Decisions[i])
		}
	}
	back := merge(prev, l)
	ok = slices.EqualFunc(back.Events, next.Events, func(a, b cluster.KVEvent) bool { return eventOf(&a) == eventOf(&b) }) &&
		slices.EqualFunc(back.Decisions, next.Decisions, func(a, b cluster.RouterDecision) bool { return sameDecision(&a, &b) })
	return l, ok
}

// merge is the snapshot of a line that follows prev.
func merge(prev cluster.Snapshot, l line) cluster.Snapshot {
	s := l.Snapshot
	if !l.SincePrevious {
		return s
	}
	s.Events = append(slices.Clone(l.Events), prev.Events...)
	s.Events = s.Events[:min(len(s.Events), keepRows)]
	again := map[decisionID]*cluster.RouterDecision{}
	for i := range l.Decisions {
		again[idOf(&l.Decisions[i])] = &l.Decisions[i]
	}
	var old []cluster.RouterDecision
	for i := range prev.Decisions {
		d := prev.Decisions[i]
		if n := again[idOf(&d)]; n != nil {
			d = *n
			delete(again, idOf(&d))
		}
		old = append(old, d)
	}
	s.Decisions = []cluster.RouterDecision{}
	for i := range l.Decisions {
		if again[idOf(&l.Decisions[i])] != nil {
			s.Decisions = append(s.Decisions, l.Decisions[i])
		}
	}
	s.Decisions = append(s.Decisions, old...)
	s.Decisions = s.Decisions[:min(len(s.Decisions), keepRows)]
	return s
}
