package served

import (
	"context"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/external"
)

func (s *Server) watchLoad(ctx context.Context) {
	t := time.NewTicker(s.Waits.Load)
	defer t.Stop()
	for failed := false; ; {
		_, err := s.look(ctx)
		if err != nil && !failed && ctx.Err() == nil {
			s.Log.Warn("the server does not tell its load: only requests of this worker count", "error", err)
		}
		failed = err != nil
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// look asks the server for its load.
func (s *Server) look(ctx context.Context) (l external.Load, err error) {
	asked := time.Now()
	err = s.ask(ctx, func(ctx context.Context) error {
		l, err = s.Engine.Load(ctx)
		return err
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.load, s.noLoad, s.asked = external.Load{}, cut(err.Error()), time.Time{} // what it told once says nothing about now
		return l, err
	}
	s.load, s.noLoad, s.asked = l, "", asked
	if l == (external.Load{}) {
		s.noLoad = "it tells no figures"
	}
	return l, nil
}

// Stats returns the load figures. What the server does not tell is counted from the requests
// of this worker: no figure is zero because it is unknown.
func (s *Server) Stats() cluster.WorkerStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st, f := s.stats, s.Facts
	mine, tokens := 0, 0
	for r := range s.requests {
		mine++
		tokens += r.prompt + r.output
		if !r.started {
			st.Prefilling++
			st.PrefillTokens += r.prompt
		}
	}
	st.Running = mine
	if s.load.Running != nil && s.load.Waiting != nil {
		// Others may use the server, too, and it tells both a moment late.
		st.Running, st.Waiting = max(*s.load.Running, mine-*s.load.Waiting), *s.load.Waiting
	} else if s.load.Running != nil {
		st.Running = max(*s.load.Running, mine)
	}
	st.MaxSeqs, st.BlockSize, st.PrefillRate = f.MaxSeqs, s.BlockSize, s.rate
	st.KVTotal = s.blocks()
	if st.KVTotal == 0 {
		return st
	}
	st.KVActive = (tokens + s.BlockSize - 1) / s.BlockSize
	if u := s.load.KVUsage; u != nil {
		st.KVActive = int(*u * float64(st.KVTotal))
	}
	st.KVActive = min(max(st.KVActive, 0), st.KVTotal)
	return st
}

// blocks is the size of the server's KV pool in blocks of the router, 0 if it does not tell.
func (s *Server) blocks() int { return s.Facts.KVBlocks * max(s.Facts.BlockSize, 0) / s.BlockSize }

// proofAge is how old the word of a server may be that it runs nothing. A drain asks often, and a
// server shall not be kept busy by that.
const proofAge = 200 * time.Millisecond

// AtServer counts what is at the server: the requests of this worker or, once these have ended,
// what the server itself says since then to run and to have waiting. That is the proof that it may
// be stopped. A server that does not tell has nothing then; of one that cannot be asked nothing
// is proven, and there is one.
func (s *Server) AtServer(ctx context.Context) int {
	s.mu.Lock()
	n, l := len(s.requests), s.load
	fresh := s.asked.After(s.freed) && time.Since(s.asked) < proofAge
	s.mu.Unlock()
	if n > 0 {
		return n
	}
	if !fresh {
		var err error
		if l, err = s.look(ctx); err != nil {
			return 1
		}
	}
	for _, v := range []*int{l.Running, l.Waiting} {
		if v != nil {
			n = max(n, *v)
		}
	}
	return n
}
