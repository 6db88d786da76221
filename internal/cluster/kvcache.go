package cluster

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

// KVCaches describes the workers' KV caches in a snapshot: what the frontends' indexes know
// of them, and the KV events that they publish.
type KVCaches struct {
	// At is when frontends last answered, by the observer's clock; zero if none has.
	At        time.Time `json:"at,omitzero"`
	Frontends int       `json:"frontends"` // that answered
	// Error says why the newest question was not answered. The figures are older then.
	Error   string    `json:"error,omitempty"`
	Workers []KVCache `json:"workers"` // sorted by name
}

// KVCache describes the KV cache of one worker.
type KVCache struct {
	Worker     string     `json:"worker"`
	InstanceID InstanceID `json:"instance_id"`
	// Index is the combined report of all frontends; nil if none knows the worker.
	Index *KVIndexWorker `json:"index"`
	// Approximate is set when a frontend guesses the contents by what was routed.
	Approximate bool `json:"approximate,omitempty"`
	// EventRate is KV events per second; nil before two snapshots.
	EventRate *float64 `json:"events_per_s"`
	// EventAt is when the last KV event came, by the observer's clock; zero if none has.
	EventAt time.Time `json:"last_event,omitzero"`
}

// CombineKVIndexes merges what several frontends know of each worker, sorted by name.
// Accuracies are added. Otherwise the least complete view counts: blocks and position are
// those of the frontend that is furthest behind, counts of repairs the largest. Times are
// converted to the clock that shows now, at the moment the answers came.
func CombineKVIndexes(all []KVIndex, now time.Time) []KVCache {
	var out []KVCache
	at := map[InstanceID]int{}
	for _, x := range all {
		for _, w := range x.Workers {
			if !w.OutOfDateSince.IsZero() && !x.At.IsZero() {
				w.OutOfDateSince = now.Add(w.OutOfDateSince.Sub(x.At))
			}
			i, known := at[w.InstanceID]
			if !known {
				at[w.InstanceID] = len(out)
				out = append(out, KVCache{Worker: w.Worker, InstanceID: w.InstanceID, Index: &w, Approximate: x.Approximate})
				continue
			}
			c := &out[i]
			c.Approximate = c.Approximate || x.Approximate
			*c.Index = combine(*c.Index, w)
		}
	}
	slices.SortFunc(out, func(a, b KVCache) int {
		return cmp.Or(CompareNames(a.Worker, b.Worker), cmp.Compare(a.InstanceID, b.InstanceID))
	})
	return out
}

func combine(a, b KVIndexWorker) KVIndexWorker {
	if a.Epoch == b.Epoch && b.Next < a.Next || a.Epoch != b.Epoch && b.Device+b.Host+b.Disk < a.Device+a.Host+a.Disk {
		a, b = b, a
	}
	if a.OutOfDateSince.IsZero() || !b.OutOfDateSince.IsZero() && b.OutOfDateSince.Before(a.OutOfDateSince) {
		a.OutOfDateSince = b.OutOfDateSince
	}
	a.GapsTotal, a.AnswersTotal = max(a.GapsTotal, b.GapsTotal), max(a.AnswersTotal, b.AnswersTotal)
	a.DumpsTotal, a.ResetsTotal = max(a.DumpsTotal, b.DumpsTotal), max(a.ResetsTotal, b.ResetsTotal)
	a.Accuracy = a.Accuracy.Plus(b.Accuracy)
	switch {
	case a.Recent == nil:
		a.Recent = b.Recent
	case b.Recent != nil:
		sum := a.Recent.Plus(*b.Recent)
		a.Recent = &sum
	}
	return a
}

const (
	// falseFewest is the number of recently predicted blocks from which on their accuracy
	// is judged, falseMost the share of them that may be missing: a few are evicted between
	// the decision and the look.
	falseFewest = 200
	falseMost   = 0.10
	// outOfDateMost is how long events may be missing. A frontend usually repairs its index
	// within milliseconds, and forgets the worker's blocks after a second.
	outOfDateMost = 5 * time.Second
)

// OftenFalse reports whether too many of the recently predicted blocks were not found.
func (c KVCache) OftenFalse() bool {
	if c.Index == nil || c.Index.Recent == nil || c.Index.Recent.Predicted < falseFewest {
		return false
	}
	share, _ := c.Index.Recent.FalseShare()
	return share > falseMost
}

// Problems lists what is wrong with the frontends' knowledge of the cache, one line each,
// the most serious first.
func (c KVCache) Problems(now time.Time) (out []string) {
	if c.Index == nil {
		return nil
	}
	if since := c.Index.OutOfDateSince; !since.IsZero() && now.Sub(since) >= outOfDateMost {
		out = append(out, fmt.Sprintf("index of %s is out of date for %s", c.Worker, now.Sub(since).Truncate(time.Second)))
	}
	if c.OftenFalse() {
		share, _ := c.Index.Recent.FalseShare()
		out = append(out, fmt.Sprintf("%s: %.0f%% of %d predicted blocks were not there", c.Worker, math.Floor(share*100), c.Index.Recent.Predicted))
	}
	return out
}
