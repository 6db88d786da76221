package decode

import (
	"context"
	"errors"
	"io"

	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/worker/media"
	"github.com/dynctl/dynctl/internal/worker/role"
)

// generate serves one request of a frontend: it submits the prompt to the engine
// and streams the tokens back.
func (w *Role) generate(ctx context.Context, req *requestplane.Request, send func(any) error) error {
	var p protocol.PreprocessedRequest
	if err := req.Decode(&p); err != nil {
		return err
	}
	if err := w.CheckRequest(&p); err != nil {
		return err
	}
	d := &disaggregation{w: w, tenant: p.Tenant, hints: p.Disagg, media: p.Media, images: w.Images.Of(media.Owner{Request: p.RequestID, Tenant: p.Tenant}, w.Model.Digest, p.TokenIDs, p.Media)}
	id, stream, err := w.begin(ctx, &p, d)
	if err != nil {
		return err
	}
	defer stream.Cancel()
	defer w.requests.add(id, &p)()
	usage := protocol.Usage{PromptTokens: len(p.TokenIDs) - p.Generated}
	for {
		o, err := stream.Next(ctx)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return &requestplane.RemoteError{Kind: requestplane.KindCancelled, Message: err.Error()}
		case o.Err != nil:
			return role.RemoteError(o.Err)
		}
		usage.CompletionTokens += len(o.Tokens)
		out := protocol.EngineOutput{TokenIDs: o.Tokens, Finish: o.Finish, Logprobs: o.Logprobs, PromptLogprobs: o.PromptLogprobs, DecodeNS: int64(o.Decoded)}
		if o.Decoded > 0 {
			w.Meter.Decoded(o.Decoded)
		}
		if o.First != nil {
			usage.CachedTokens = o.First.Cached
			out.Timing = d.timing(o.First)
		}
		switch o.Finish {
		case protocol.FinishNone:
		case protocol.FinishMoved:
			out.Moved = o.Moved
		default:
			out.Usage = &usage
		}
		if err := send(out); err != nil {
			return err
		}
	}
}

// begin brings a request into the engine: as the reader of a sequence that was moved
// here, or as a new one, which d disaggregates. id is that of the sequence.
func (w *Role) begin(ctx context.Context, p *protocol.PreprocessedRequest, d *disaggregation) (id string, stream *engine.Stream, err error) {
	if p.Handover != "" {
		if a := w.attach(ctx, p); a != nil {
			d.notice = a.notice
			return a.id, a.stream, nil
		}
	}
	constraint, err := w.constraint(ctx, p.Guided)
	if err != nil {
		return "", nil, err
	}
	r := w.illustrated(p, d.images, constraint)
	r.Decide, r.Remote = d.decide, d.fill
	if stream, err = w.Engine.Submit(ctx, r); err != nil {
		return "", nil, role.RemoteError(err)
	}
	return p.RequestID, stream, nil
}

// constraint makes what keeps an output in its form, nil for a free one.
func (w *Role) constraint(ctx context.Context, g *protocol.Guided) (engine.Constraint, error) {
	switch {
	case g == nil:
		return nil, nil
	case w.Model.Constrain == nil:
		return nil, &requestplane.RemoteError{Kind: requestplane.KindInvalidArgument, Message: "this worker cannot constrain outputs"}
	}
	c, err := w.Model.Constrain(ctx, *g)
	switch {
	case err == nil:
		return c, nil
	case ctx.Err() != nil:
		return nil, &requestplane.RemoteError{Kind: requestplane.KindCancelled, Message: err.Error()}
	case errors.Is(err, engine.ErrQueueFull):
		return nil, role.RemoteError(err)
	}
	return nil, &requestplane.RemoteError{Kind: requestplane.KindInvalidArgument, Message: err.Error()}
}

func (d *disaggregation) timing(f *engine.FirstToken) *protocol.Timing {
	t := &protocol.Timing{
		Worker: d.w.Worker, Prefill: "local", PrefillWhy: f.Why,
		QueueNS: int64(f.Queued), PrefillNS: int64(f.Prefill), CachedTokens: f.Cached,
	}
	t.Encoded = d.images.About()
	if f.Remote {
		t.Prefill, t.PrefillWhy, t.PrefillWay = f.Why, "", d.way
		n := &d.notice
		t.ComputeNS = n.ComputeNS
		t.KV = protocol.KVMoved{NS: n.WriteNS, ExposedNS: n.ExposedNS, Bytes: n.Bytes, Transport: n.Transport}
		if n.Encoded.Parts > 0 {
			t.Encoded = n.Encoded
		}
	}
	return t
}
