package client

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/mooncake"
	"github.com/dynctl/dynctl/internal/protocol"
)

// ErrNoLoad is returned when no frontend of the cluster offers the load that it remembers.
var ErrNoLoad = errors.New("no frontend reports the load that it has served")

// loadWithin bounds how long frontends have to tell their load.
const loadWithin = 30 * time.Second

// Load is what the frontends of a cluster remember of their load.
type Load struct {
	// Requests are those of all frontends, in the order of their arrival. One without output had no answer.
	Requests []cluster.RecordedRequest
	// Since is from when on all frontends remember all requests that have ended.
	Since time.Time
	// Frontends are those that told, Off those that remember nothing, and Silent those that did not answer;
	// names of nodes.
	Frontends, Off, Silent []string
}

// RecordedLoad asks all frontends for the load that they remember: requests that arrived at most so long ago, or
// all for 0. It fails with ErrNoLoad, or when no frontend answers.
func (c *Cluster) RecordedLoad(ctx context.Context, v View, ago time.Duration) (Load, error) {
	ctx, cancel := context.WithTimeout(ctx, loadWithin)
	defer cancel()
	pages, err := askFrontends[cluster.RecordedLoad](ctx, c, v, cluster.EndpointLoad, protocol.LoadRequest{Since: ago}, ErrNoLoad)
	if err != nil {
		return Load{}, err
	}
	var l Load
	for _, p := range pages {
		to := &l.Frontends
		if p.Off {
			to = &l.Off
		}
		if !slices.Contains(*to, p.Frontend) {
			*to = append(*to, p.Frontend)
		}
		if !p.Off && p.Since.After(l.Since) {
			l.Since = p.Since
		}
		l.Requests = append(l.Requests, p.Requests...)
	}
	for _, inst := range v.Instances {
		if name := v.NodeName(inst.Node); inst.Component == cluster.ComponentFrontend && inst.Endpoint == cluster.EndpointLoad && !slices.Contains(l.Frontends, name) && !slices.Contains(l.Off, name) {
			l.Silent = append(l.Silent, name)
		}
	}
	for _, names := range [][]string{l.Frontends, l.Off, l.Silent} {
		slices.SortFunc(names, cluster.CompareNames)
	}
	slices.SortStableFunc(l.Requests, func(a, b cluster.RecordedRequest) int { return a.At.Compare(b.At) })
	return l, nil
}

// Models names the models of the requests, in order.
func (l *Load) Models() (names []string) {
	for _, q := range l.Requests {
		if !slices.Contains(names, q.Model) {
			names = append(names, q.Model)
		}
	}
	slices.SortFunc(names, cmp.Compare)
	return names
}

// Trace returns the requests of a model that had an answer as a trace, which begins with the first of them, and how
// many had none. Empty stands for all models. Blocks get numbers in the order in which they appear: of the prompts, a
// trace says nothing but how long they are and where they begin alike.
func (l *Load) Trace(model string) (out []mooncake.Request, unanswered int) {
	ids := map[uint64]uint64{}
	var first time.Time
	for _, q := range l.Requests {
		switch {
		case model != "" && q.Model != model:
			continue
		case q.Output < 1 || q.Prompt < 1 || len(q.Blocks) != (q.Prompt+cluster.LoadBlock-1)/cluster.LoadBlock:
			unanswered++
			continue
		}
		if first.IsZero() {
			first = q.At
		}
		r := mooncake.Request{At: q.At.Sub(first), Input: q.Prompt, Output: q.Output, Blocks: make([]uint64, len(q.Blocks))}
		for i, h := range q.Blocks {
			id, known := ids[h]
			if !known {
				id = uint64(len(ids))
				ids[h] = id
			}
			r.Blocks[i] = id
		}
		out = append(out, r)
	}
	return out, unanswered
}
