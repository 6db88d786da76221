package served

import (
	"fmt"
	"slices"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
)

// request is one request at the server.
type request struct {
	id      string
	reader  string // of an item that is encoded: the worker that has the prompt
	began   time.Time
	prompt  int // tokens, estimated for a body
	output  int
	cached  int  // of the prompt
	started bool // the prompt is computed
}

// admit takes a request in. reader is empty unless it is an item to be encoded.
func (s *Server) admit(p *protocol.PreprocessedRequest, reader string) (*request, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return nil, &requestplane.RemoteError{Kind: requestplane.KindUnavailable, Message: "the worker is draining"}
	case s.sleep.asleep:
		return nil, errAsleep
	case len(s.requests) >= maxOpen:
		s.stats.RejectedTotal++
		return nil, &requestplane.RemoteError{Kind: requestplane.KindOverloaded, Message: fmt.Sprintf("%d requests are at the server", maxOpen)}
	}
	r := &request{id: p.RequestID, reader: reader, began: time.Now(), prompt: p.PromptTokens()}
	s.requests[r] = struct{}{}
	s.stats.RequestsTotal++
	return r, nil
}

// encoded records that an item is encoded.
func (s *Server) encoded(took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.EncodedTotal++
	s.stats.StepNanosTotal += uint64(max(took, 0)) // #nosec G115 -- not negative
}

// computed records that the prompt of a request is computed, with cached tokens of it found in
// the server's cache; -1 if unknown.
func (s *Server) computed(r *request, cached int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.started {
		return
	}
	r.started, r.cached = true, max(cached, 0)
	uncached := r.prompt - max(cached, 0)
	s.stats.PromptTokensTotal += count(r.prompt)
	s.stats.CachedTokensTotal += count(max(cached, 0))
	s.stats.ComputedTotal += count(uncached)
	if took := time.Since(r.began).Seconds(); cached >= 0 && uncached >= measured && len(s.requests) == 1 && took > 0 {
		now := float64(uncached) / took
		if s.rate > 0 {
			now = s.rate + (now-s.rate)/4
		}
		s.rate = now
	}
}

// measured is the least number of tokens whose computation tells the speed of prompts: a
// shorter one tells the time of a round trip.
const measured = 256

func count(n int) uint64 { return uint64(max(n, 0)) } // #nosec G115 -- not negative

func (s *Server) generated(r *request, tokens int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.output += tokens
	s.stats.GeneratedTotal += count(tokens)
}

// release ends a request; err says how.
func (s *Server) release(r *request, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.requests, r)
	s.freed = time.Now()
	switch {
	case err == nil:
		s.stats.FinishedTotal++
	default:
		s.stats.CancelledTotal++
	}
}

// StopAdmission refuses new requests until ResumeAdmission.
func (s *Server) StopAdmission() { s.setClosed(true) }

// ResumeAdmission takes new requests again.
func (s *Server) ResumeAdmission() { s.setClosed(false) }

func (s *Server) setClosed(v bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = v
}

// Sequences lists the requests at the server, oldest first, at most limit, and counts all.
func (s *Server) Sequences(limit int) ([]cluster.Sequence, int) {
	oldest, n := s.oldest(limit, func(r *request) bool { return r.reader == "" })
	var out []cluster.Sequence
	for _, r := range oldest {
		q := cluster.Sequence{
			ID: r.id, State: cluster.SequencePrefill, PromptTokens: r.prompt, CachedTokens: r.cached, OutTokens: r.output, AgeMS: time.Since(r.began).Milliseconds(),
		}
		if r.started {
			q.State, q.ComputedTokens = cluster.SequenceDecode, r.prompt+r.output
		}
		out = append(out, q)
	}
	return out, n
}

// oldest returns copies of some requests at the server, oldest first, at most limit, and counts all
// of them.
func (s *Server) oldest(limit int, some func(*request) bool) (out []request, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*request
	for r := range s.requests {
		if some(r) {
			all = append(all, r)
		}
	}
	if limit > 0 {
		slices.SortFunc(all, func(a, b *request) int { return a.began.Compare(b.began) })
	}
	for _, r := range all[:min(limit, len(all))] {
		out = append(out, *r)
	}
	return out, len(all)
}
