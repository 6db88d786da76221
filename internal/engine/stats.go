package engine

import "github.com/dynctl/dynctl/internal/cluster"

// Stats returns the load figures as of the last step, without waiting.
func (e *Engine) Stats() cluster.WorkerStats { return *e.stats.Load() }

func (e *Engine) publishStats() {
	st := e.count
	c := e.pool.Counts()
	st.Running, st.Waiting, st.RemoteWait = len(e.running), e.waiting.Len(), e.remote
	st.Moving = e.apart
	st.MaxSeqs, st.BlockSize = e.cfg.MaxSeqs, e.info.KV.BlockSize
	st.KVTotal, st.KVActive, st.KVCached = c.Total, c.Active, c.Cached
	st.KVIncoming, st.KVOutgoing, st.Quarantined = c.Incoming, c.Outgoing, c.Quarantined
	st.EvictedTotal = e.pool.evicted
	st.PrefillRate = e.pace.prefillRate(e.cfg.MaxBatchTokens)
	e.stats.Store(&st)
}
