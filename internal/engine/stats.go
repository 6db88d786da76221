package engine

import "github.com/dynctl/dynctl/internal/cluster"

// Stats returns the load figures as of the last step, without waiting.
func (e *Engine) Stats() cluster.WorkerStats {
	if e.stepped() {
		return e.currentStats()
	}
	return *e.stats.Load()
}

func (e *Engine) publishStats() {
	if !e.stepped() { // nobody reads them at the same time
		e.stats.Store(new(e.currentStats()))
	}
}

func (e *Engine) currentStats() cluster.WorkerStats {
	st := e.count
	c := e.pool.Counts()
	st.Running, st.Waiting, st.RemoteWait = len(e.running), e.waiting.Len(), e.remote
	st.EncodeWait, st.Moving = e.encodes, e.apart
	for _, s := range e.running {
		if n := s.pending(); n > 1 {
			st.Prefilling, st.PrefillTokens = st.Prefilling+1, st.PrefillTokens+n
		}
	}
	st.MaxSeqs, st.MaxBatchTokens, st.BlockSize = e.cfg.MaxSeqs, e.cfg.MaxBatchTokens, e.info.KV.BlockSize
	st.KVTotal, st.KVActive, st.KVCached = c.Total, c.Active, c.Cached
	st.KVIncoming, st.KVOutgoing, st.Quarantined = c.Incoming, c.Outgoing, c.Quarantined
	st.EvictedTotal = e.pool.evicted
	st.PrefillRate = e.pace.prefillRate(e.cfg.MaxBatchTokens)
	return st
}
