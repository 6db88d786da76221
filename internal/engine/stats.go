package engine

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
)

// Stats returns the load figures as of the last step. It never waits.
func (e *Engine) Stats() cluster.WorkerStats { return *e.stats.Load() }

func (e *Engine) publishStats() {
	st := e.count
	c := e.pool.Counts()
	st.Running, st.Waiting, st.RemoteWait = len(e.running), len(e.waiting), e.remote
	st.Moving = e.apart
	st.MaxSeqs, st.BlockSize = e.cfg.MaxSeqs, e.info.KV.BlockSize
	st.KVTotal, st.KVActive, st.KVCached = c.Total, c.Active, c.Cached
	st.KVIncoming, st.KVOutgoing, st.Quarantined = c.Incoming, c.Outgoing, c.Quarantined
	st.EvictedTotal = e.pool.evicted
	e.stats.Store(&st)
}

// OpenSequences lists the sequences that are not finished, oldest first, at most
// n of them, and how many there are.
func (e *Engine) OpenSequences(ctx context.Context, n int) (open []cluster.OpenSequence, total int, err error) {
	type list struct {
		open  []cluster.OpenSequence
		total int
	}
	l, err := ask(ctx, e, func() list {
		all := slices.SortedFunc(maps.Values(e.seqs), func(a, b *sequence) int { return a.arrived.Compare(b.arrived) })
		l := list{total: len(all)}
		for _, s := range all[:min(n, len(all))] {
			l.open = append(l.open, cluster.OpenSequence{
				RequestID: s.id, OutTokens: s.output(), AgeMS: time.Since(s.arrived).Milliseconds(),
			})
		}
		return l
	})
	return l.open, l.total, err
}
