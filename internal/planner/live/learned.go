package live

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/planner"
	"github.com/dynctl/dynctl/internal/profile"
	"github.com/dynctl/dynctl/internal/store"
)

// rememberedActions is how many starts, and how many changes of role, their times are known from.
const rememberedActions = 32

// learned keeps what was learned of the workers in the store, for whoever simulates the cluster.
type learned struct {
	starts, flips []time.Duration // the newest
	kept          profile.Learned
	keptAt        time.Time
}

// actions takes in how long actions took that have ended.
func (n *learned) actions(ended []planner.Duration) {
	for _, d := range ended {
		switch d.Kind {
		case planner.ActionStart:
			n.starts = newest(n.starts, d.Took)
		case planner.ActionFlip:
			n.flips = newest(n.flips, d.Took)
		}
	}
}

func newest(list []time.Duration, d time.Duration) []time.Duration {
	list = append(list, d)
	return slices.Clone(list[max(len(list)-rememberedActions, 0):])
}

// median returns the median in seconds, or 0 of nothing.
func median(list []time.Duration) float64 {
	if len(list) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(list))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]).Seconds() / 2
}

// profile returns what is known of one worker. Transfers of KV have the mean speed that they had, each by itself:
// those at the same time share a link, so that it is faster.
func (n *learned) profile(s *Speed, v View) (p profile.Profile, unknown []string) {
	p = s.profile
	p.Limits.MaxContext = p.Limits.KVTokens() // no longer sequence has room
	var bytes, nanos uint64
	for _, name := range slices.SortedFunc(maps.Keys(v.Status), cluster.CompareNames) {
		st := v.Status[name]
		if !st.Role.HoldsKV() {
			continue
		}
		p.Name = st.Model
		bytes, nanos = bytes+st.Stats.TransferBytesTotal, nanos+st.Stats.TransferNanosTotal
		if st.Stats.BlockSize > 0 {
			p.KV.BytesPerToken = float64(st.BlockBytes) / float64(st.Stats.BlockSize)
		}
	}
	if bytes > 0 && nanos > 0 {
		p.KV.Bandwidth = float64(bytes) / time.Duration(nanos).Seconds()
	} else {
		p.KV.BytesPerToken, unknown = 0, append(unknown, "kv")
	}
	p.Overheads.Startup, p.Overheads.Flip = median(n.starts), median(n.flips)
	unknown = append(unknown, "overheads.frontend_s", "overheads.delivery_s")
	if len(n.starts) == 0 {
		unknown = append(unknown, "overheads.startup_s")
	}
	if len(n.flips) == 0 {
		unknown = append(unknown, "overheads.flip_s")
	}
	return p, unknown
}

// known reports whether the store has a profile, of which n takes note.
func (n *learned) known(ctx context.Context, cfg Config) bool {
	if n.kept.Time.IsZero() {
		read, cancel := context.WithTimeout(ctx, writeWithin)
		defer cancel()
		if l, _, err := store.GetJSON[profile.Learned](read, cfg.Store, cluster.ProfileKey(cfg.Namespace)); err == nil {
			n.kept = l
		}
	}
	return !n.kept.Time.IsZero() && n.kept.Missing == ""
}

// keep writes what is known into the store: when it becomes known, and else once a minute where it has changed.
func (n *learned) keep(ctx context.Context, cfg Config, now time.Time, s *Speed, v View) {
	l := profile.Learned{Node: cfg.Node, Missing: s.unlearned()}
	l.Profile, l.Unknown = n.profile(s, v)
	l.Observed = s.observed()
	if l.Missing == "" {
		if err := l.Profile.Validate(); err != nil {
			l.Missing = err.Error()
		}
	}
	if l.Missing != "" && n.known(ctx, cfg) {
		return // what another leader has learned is as true as before
	}
	kept := n.kept
	kept.Time = time.Time{}
	if reflect.DeepEqual(kept, l) || l.Missing == n.kept.Missing && now.Sub(n.keptAt) < keepEvery {
		return
	}
	l.Time = now
	write, cancel := context.WithTimeout(ctx, writeWithin)
	defer cancel()
	if _, err := store.PutJSON(write, cfg.Store, cluster.ProfileKey(cfg.Namespace), l); err != nil {
		if ctx.Err() == nil {
			cfg.Log.Warn("what was learned of the workers is not in the store", "error", err)
		}
		return
	}
	n.kept, n.keptAt = l, now
}
