package frontend

import (
	"encoding/hex"
	"net/http"
	"time"

	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/router"
)

// query answers where the first choice would run, and runs and books nothing.
func (j *job) query(w http.ResponseWriter, a answerer, p *params) error {
	g := j.choices[0].gen
	workers, err := g.wouldRunOn()
	if err != nil {
		asAPIError(err).write(w)
		return err
	}
	e := &extension{Workers: workers, TokenIDs: g.req.TokenIDs, Route: &g.decision}
	for i := range g.req.Media {
		p := &g.req.Media[i]
		e.Images = append(e.Images, queriedImage{p.Source.ID, hex.EncodeToString(p.Key[:]), p.Rows})
	}
	if p.stream {
		return newSSE(w, j.f.limits.write).end(a.lastEvent(nil, e), nil)
	}
	writeJSON(w, http.StatusOK, a.whole(nil, j.usage(), e))
	return nil
}

// wouldRunOn returns the workers that would be chosen now, and leaves the decision, which is
// not announced.
func (g *generation) wouldRunOn() (*ranOn, error) {
	begin := time.Now()
	r, d, err := g.previewDecode()
	if err != nil {
		return nil, err
	}
	g.decided(d, r, g.lookup(r).most, begin)
	out := newRanOn(d.Chosen.ID, d.Chosen.Worker)
	local := func() { out.prefilled(out.DecodeID, out.Decode) }
	settings := g.f.cfg.Settings()
	candidates := g.prefillCandidates(g.f.prefills.Instances(), nil)
	if n := len(g.req.Media); n > 0 && g.req.Media[n-1].End == len(g.req.TokenIDs) {
		g.decision.PrefillWhy = whyEndsWithImage
		local()
		return out, nil
	}
	if g.strategy != protocol.StrategyPrefillFirst {
		if len(candidates) == 0 {
			local()
		}
		return out, nil
	}
	r, _ = g.describePrefill(candidates)
	state, likely := g.prefillState(candidates, r, settings)
	remote, why := router.DecidePrefill(state, settings.Prefill)
	g.decision.PrefillWhy = why
	switch {
	case remote && likely.ID != 0:
		out.prefilled(likely.ID, likely.Worker)
	case settings.Prefill.Enforce && (remote || router.StandsIn(why)):
		return nil, notPrefilled(why)
	default:
		local()
	}
	return out, nil
}
