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
	// workerHeader is Dynamo's header that names the decode worker of a request.
	workerHeader = "X-Dynamo-Worker-Instance-Id"
)

// nvextHeaders are Dynamo's headers that say what fields of nvext say, too. A header wins
// over the field.
var nvextHeaders = []struct {
	name string
	read func(p *nvextParams, name, value string) *apiError
}{
	{workerHeader, func(p *nvextParams, name, value string) *apiError {
		return setWorker(&p.decode, name, value)
	}},
	{"X-Dynamo-Prefill-Instance-Id", func(p *nvextParams, name, value string) *apiError {
		return setWorker(&p.prefill, name, value)
	}},
	{"X-Dynamo-Request-Priority", func(p *nvextParams, name, value string) *apiError {
		return p.queueing.readPriority(name, json.RawMessage(value))
	}},
	{"X-Dynamo-Request-Strict-Priority", func(p *nvextParams, name, value string) *apiError {
		return p.queueing.readStrict(name, json.RawMessage(value))
	}},
	{"X-Dynamo-Session-Id", func(p *nvextParams, name, value string) *apiError {
		p.session = value
		return checkSession(name, value)
	}},
}

// readHeaders reads the headers that stand for fields of nvext.
func (p *nvextParams) readHeaders(h http.Header) *apiError {
	for _, of := range nvextHeaders {
		if v := h.Get(of.name); v != "" {
			if bad := of.read(p, of.name, v); bad != nil {
				return bad
			}
		}
	}
	return nil
}

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
func (g *generation) policy() router.Policy { return g.routing.policyOf(g.f) }

func (a routeAsk) policyOf(f *Frontend) router.Policy {
	if a.policy != nil {
		return a.policy
	}
	return f.policy()
}

// checkDirect refuses a request that leaves the choice of its worker to a router that does
// not choose.
func (j *job) checkDirect(p *nvextParams) *apiError {
	if p.decode != nil || j.routing.policyOf(j.f).Name() != router.Direct {
		return nil
	}
	const field = "nvext.decode_worker_id"
	return invalid(field, "With the router policy '%s' a request must name its decode worker, in '%s' or in the header %s.", router.Direct, field, workerHeader).
		withCode("missing_required_parameter")
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
