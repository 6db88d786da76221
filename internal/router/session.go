package router

import "github.com/dynctl/dynctl/internal/cluster"

// stay returns what it costs a session to leave its worker, in the unit of a policy. The
// cost of every other worker grows by that.
type stay func(r Request, free []Candidate) float64

// stayKV is the whole prompt in blocks: another worker must be cheaper by that much.
func stayKV(r Request, _ []Candidate) float64 {
	return float64(r.PromptTokens) / float64(max(1, r.BlockSize))
}

// stayLoad is one request more than the workers have on average, so that a session leaves a
// worker that has about twice its share.
func stayLoad(_ Request, free []Candidate) float64 {
	n := 0
	for i := range free {
		n += free[i].InFlight
	}
	return 1 + float64(n)/float64(len(free))
}

// stayTurn and stayRandom exceed every difference of costs: these policies weigh no load
// that could speak against the session's worker.
func stayTurn(_ Request, free []Candidate) float64 { return float64(len(free)) }

func stayRandom(Request, []Candidate) float64 { return 1 }

// addSession adds the term of the session to those of every candidate. It returns the place
// of the session's worker in free, or -1 if the request has no session or its worker may
// not be chosen.
func (p costed) addSession(r Request, free []Candidate, terms *Terms) int {
	if r.Session == 0 || p.stay == nil {
		return -1
	}
	at := 0
	for at < len(free) && free[at].ID != r.Session {
		at++
	}
	if at == len(free) {
		return -1
	}
	away, cost := p.stay(r, free), terms.Add(cluster.TermSession)
	for i := range cost {
		if i != at {
			cost[i] = away
		}
	}
	return at
}
