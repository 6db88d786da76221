package served

import (
	"context"
	"fmt"
	"sync"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/external"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/worker/role"
)

// duty is what both roles do: they pass requests on.
type duty struct {
	role.Base
	*role.Term
	s *Server

	renewing sync.WaitGroup
	stop     context.CancelFunc // ends it; nil before Register
}

// register serves requests at an endpoint by h, and publishes the card, again whenever the adapters
// of the server change.
func (d *duty) register(ctx context.Context, endpoint string, h requestplane.Handler) error {
	_, changed := d.s.Adapters()
	if err := d.PublishCard(ctx, nil); err != nil {
		return err
	}
	if _, err := d.Serve(ctx, endpoint, d.Metered(h)); err != nil {
		return err
	}
	ctx, d.stop = context.WithCancel(ctx)
	d.renewing.Go(func() { d.renew(ctx, changed) })
	return nil
}

// End implements role.Role.
func (d *duty) End() {
	if d.stop != nil {
		d.stop()
		d.renewing.Wait()
	}
}

// NewRole makes the work of a role for one term. The term has no engine and no KV plane.
func (s *Server) NewRole(as cluster.Role, t *role.Term) (role.Role, error) {
	d := &duty{Term: t, s: s}
	switch {
	case as == cluster.RoleDecode:
		return &decode{duty: d}, nil
	case as == cluster.RoleEncode:
		encoder, ok := s.Engine.(external.Encoder)
		if !ok || s.Tokenizer != nil {
			return nil, fmt.Errorf("an encode worker needs a server of an engine that encodes for others, and a model without a folder: this one of %s encodes for itself", s.Backend)
		}
		return &encode{d, encoder}, nil
	case s.Engine.Exchange() == external.ExchangeNone:
		return nil, fmt.Errorf("a prefill worker needs a server that exchanges KV: this one of %s has no connector", s.Backend)
	}
	return &prefill{duty: d}, nil
}

// request translates a request of a frontend for the server.
func (d *duty) request(p *protocol.PreprocessedRequest) (*external.Request, error) {
	model, err := d.model(p)
	if err != nil {
		return nil, err
	}
	if len(p.Media) > 0 {
		return nil, invalid("images reach servers of %s only with the client's own request: serve the model without a folder", d.s.Backend)
	}
	if (p.Body == nil) == (len(p.TokenIDs) == 0) {
		return nil, invalid("a request has either tokens or a body")
	}
	r := &external.Request{PreprocessedRequest: p, Model: model}
	if b := p.Disagg.Bootstrap; b != nil && b.Place != nil {
		r.Meeting = &external.Meeting{ServerPlace: *b.Place, Room: b.Room}
	}
	if h := p.Disagg.Params; h != nil && h.Handoff != nil {
		r.Handoff = h.Handoff
		p.RequestID = h.RequestID
	}
	return r, nil
}

func unavailable(format string, args ...any) error {
	return &requestplane.RemoteError{Kind: requestplane.KindUnavailable, Message: fmt.Sprintf(format, args...)}
}

func invalid(format string, args ...any) error {
	return &requestplane.RemoteError{Kind: requestplane.KindInvalidArgument, Message: fmt.Sprintf(format, args...)}
}
