package frontend

import (
	"context"
	"strings"
	"sync"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
)

const (
	// keptRequests is the number of requests, the newest, whose decisions are kept.
	keptRequests = 2048
	// keptPerRequest bounds the decisions of one request, which may migrate often.
	keptPerRequest = 32
	// toldRequests is the most requests in one answer.
	toldRequests = 64
)

// decisions keeps the newest router decisions, so that operators can query them later.
type decisions struct {
	mu    sync.Mutex
	of    map[string][]cluster.RouterDecision // by the id of the request, oldest first
	order []string                            // ids, a ring once it is full
	next  int                                 // where in order the next id goes
}

func newDecisions() *decisions { return &decisions{of: map[string][]cluster.RouterDecision{}} }

// add keeps a decision. A decision that is announced again with more details replaces the
// first.
func (k *decisions) add(d cluster.RouterDecision) {
	id := requestOf(d.RequestID)
	k.mu.Lock()
	defer k.mu.Unlock()
	list, known := k.of[id]
	for i := range list {
		if list[i].RequestID == d.RequestID && list[i].Phase == d.Phase {
			list[i] = d
			return
		}
	}
	switch {
	case known:
	case len(k.order) < keptRequests:
		k.order = append(k.order, id)
	default:
		delete(k.of, k.order[k.next])
		k.order[k.next] = id
		k.next = (k.next + 1) % keptRequests
	}
	k.of[id] = append(list[max(len(list)-keptPerRequest+1, 0):], d)
}

// find returns the decisions about the request with the given id. If there is none, it
// returns those of requests whose id begins so, the newest requests first, at most limit
// requests.
func (k *decisions) find(id string, limit int) []cluster.RouterDecision {
	k.mu.Lock()
	defer k.mu.Unlock()
	if list, ok := k.of[id]; ok {
		return append([]cluster.RouterDecision{}, list...)
	}
	var out []cluster.RouterDecision
	for i := range k.order {
		have := k.order[(k.next+len(k.order)-1-i)%len(k.order)]
		if !strings.HasPrefix(have, id) {
			continue
		}
		if limit--; limit < 0 {
			break
		}
		out = append(out, k.of[have]...)
	}
	return out
}

// requestOf returns the id of the request to which an attempt belongs.
func requestOf(attempt string) string {
	id, _, _ := strings.Cut(attempt, "~")
	return id
}

// announceDecision keeps and publishes a router decision.
func (f *Frontend) announceDecision(ctx context.Context, d cluster.RouterDecision) {
	f.decisions.add(d)
	if bus := f.cfg.Runtime.Bus(); bus != nil {
		subject := events.Subject(f.cfg.Runtime.Namespace(), cluster.ComponentFrontend, cluster.TopicRouterDecisions)
		_ = bus.Publish(ctx, subject, d) // lost events are counted by the bus
	}
}

// sendDecisions answers an operator's query.
func (f *Frontend) sendDecisions(_ context.Context, r *requestplane.Request, send func(any) error) error {
	var req protocol.DecisionsRequest
	if err := r.Decode(&req); err != nil {
		return err
	}
	limit := toldRequests
	if req.Limit > 0 {
		limit = min(req.Limit, limit)
	}
	for _, d := range f.decisions.find(requestOf(req.RequestID), limit) {
		if err := send(d); err != nil {
			return err
		}
	}
	return nil
}
