package frontend

import (
	"encoding/json"
	"net/http"
	"strconv"
	"sync/atomic"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/router"
)

const (
	// routeHeader asks in a request, by 1 or true, that the same header of the answer
	// tells where the request went.
	routeHeader = "X-Dynctl-Route"
	// policyHeader names the policy by which the router chooses the decode worker of one
	// request.
	policyHeader = "X-Dynctl-Router-Policy"
)

// routeAsk is what the headers of a request say about its route.
type routeAsk struct {
	policy router.Policy // nil for the current one
	tell   bool
}

// readRouteAsk reads the headers.
func readRouteAsk(h http.Header) (routeAsk, *apiError) {
	var out routeAsk
	if v := h.Get(routeHeader); v != "" {
		tell, err := strconv.ParseBool(v)
		if err != nil {
			return out, invalid("", "Header %s: %q is neither true nor false.", routeHeader, v)
		}
		out.tell = tell
	}
	if v := h.Get(policyHeader); v != "" {
		p, err := router.NewPolicy(v)
		if err != nil {
			return out, invalid("", "Header %s: %s.", policyHeader, err)
		}
		out.policy = p
	}
	return out, nil
}

// policy returns the policy that chooses the decode worker.
func (g *generation) policy() router.Policy {
	if g.routing.policy != nil {
		return g.routing.policy
	}
	return g.f.policy()
}

// toldRoute is the last decision about a generation, for the header of the answer. It is
// written by the goroutine of the generation and read by that of the handler.
type toldRoute struct {
	last atomic.Pointer[cluster.RouterDecision]
}

func (t *toldRoute) set(d cluster.RouterDecision) { t.last.Store(&d) }

// routeTold is the value of the header, as JSON.
type routeTold struct {
	Request   string `json:"request"` // as dynctl explain route takes it
	Policy    string `json:"policy"`
	Worker    string `json:"worker"`
	Prefill   string `json:"prefill,omitempty"` // worker, or local
	Blocks    int    `json:"blocks"`            // full blocks of the prompt
	Predicted int    `json:"predicted_blocks"`
	// Found is absent until the worker has told it.
	Found      *int `json:"found_blocks,omitempty"`
	Candidates int  `json:"candidates"`
}

// tellRoute sets the header about the first choice, if the client has asked for it and a
// worker is chosen.
func (j *job) tellRoute(h http.Header) {
	if len(j.choices) == 0 || !j.routing.tell {
		return
	}
	d := j.choices[0].gen.told.last.Load()
	if d == nil {
		return
	}
	out := routeTold{
		Request: d.RequestID, Policy: d.Policy, Worker: d.Chosen, Prefill: d.Prefill, Blocks: d.Blocks, Predicted: d.Predicted,
		Candidates: len(d.Candidates),
	}
	if d.Prefill != "" {
		out.Found = &d.Overlap
	}
	value, _ := json.Marshal(out) // strings and numbers
	h.Set(routeHeader, string(value))
}
