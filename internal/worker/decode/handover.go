package decode

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/worker/kv"
	"github.com/dynctl/dynctl/internal/worker/media"
)

// serveHandover answers other decode workers that want to move sequences here.
func (w *Role) serveHandover(ctx context.Context, r *requestplane.Request, send func(any) error) error {
	var m protocol.HandoverRequest
	if err := r.Decode(&m); err != nil {
		return err
	}
	switch {
	case m.Offer != nil:
		return w.takeOver(ctx, m.Offer, send)
	case m.Commit != nil:
		return w.commitHandover(ctx, m.Commit, send)
	}
	st := w.Engine.Stats()
	return send(protocol.HandoverRoom{
		Sequences: st.Running + st.Waiting + st.RemoteWait + st.Moving, MaxSequences: st.MaxSeqs,
		FreeBlocks: st.KVTotal - st.KVUsed(), TotalBlocks: st.KVTotal,
		EngineID: w.KV.Name(), Metadata: w.KV.Agent().Metadata(),
	})
}

// engineRequest is a request as the engine gets it, without what is about prefill.
func (w *Role) engineRequest(p *protocol.PreprocessedRequest, c engine.Constraint) engine.Request {
	return w.illustrated(p, w.Images.Of(media.Owner{Request: p.RequestID, Tenant: p.Tenant}, w.Model.Digest, p.TokenIDs, p.Media), c)
}

// illustrated is engineRequest with the images of the request.
func (w *Role) illustrated(p *protocol.PreprocessedRequest, images *media.Images, c engine.Constraint) engine.Request {
	return engine.Request{
		ID: p.RequestID, Tenant: p.Tenant, Tokens: p.TokenIDs, Media: images.Media(), Generated: p.Generated, Stop: p.Stop, Sampling: p.Sampling, Output: p.Output, Constraint: c,
	}
}

// requests holds the requests whose sequences are in the engine, by the sequence's id. A
// hand-over sends them beside the KV.
type requests struct {
	mu   sync.Mutex
	byID map[string]*protocol.PreprocessedRequest
}

// add keeps a request until remove is called.
func (rs *requests) add(id string, p *protocol.PreprocessedRequest) (remove func()) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.byID == nil {
		rs.byID = map[string]*protocol.PreprocessedRequest{}
	}
	rs.byID[id] = p
	return func() {
		rs.mu.Lock()
		defer rs.mu.Unlock()
		if rs.byID[id] == p {
			delete(rs.byID, id)
		}
	}
}

// advanced returns the request of a sequence as it would be sent to go on where the
// sequence stands.
func (rs *requests) advanced(id string, st engine.ExportState) (p protocol.PreprocessedRequest, ok bool) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	kept := rs.byID[id]
	if kept == nil {
		return p, false
	}
	p = *kept
	known := len(st.Tokens) - st.Output
	p.TokenIDs = slices.Clip(st.Tokens[:known]) // the engine's own is not written to
	p.Advance(st.Tokens[known:])
	p.Handover, p.Output.PromptLogprobs = "", nil // told already
	return p, true
}

// Errors of hand-overs.
var (
	errNoOtherDecode = errors.New("no other decode worker")
	errNoRoom        = errors.New("no room elsewhere")
	errHandoverLate  = errors.New("the hand-over took too long")
	errPausedTooLong = errors.New("the sequence stood still for too long")
	errTaint         = errors.New("the worker lacks a taint that the request requires")
	errOutgrown      = errors.New("the sequence outgrew the room that was reserved")
	errNotTaken      = errors.New("the offer was refused")
	errNoAnswer      = errors.New("no answer to the offer")
	errNotFollowed   = errors.New("no frontend followed the sequence")
	errOtherTokens   = errors.New("the frontend has other tokens")
)

// handoverReasons are the words of metrics for the ends of hand-overs, of either side.
var handoverReasons = []struct {
	cause error
	word  string
}{
	{errOutgrown, "outgrown"},
	{errPausedTooLong, "paused too long"},
	{errHandoverLate, "too late"},
	{errNoAnswer, "no answer"},
	{errNotFollowed, "not followed"},
	{errOtherTokens, "other tokens"},
	{kv.ErrMismatch, "mismatch"},
	{errTaint, "taint"},
	{kv.ErrUnwanted, "ticket revoked"},
	{kv.ErrGone, "target lost"},
	{engine.ErrGone, "sequence over"},
	{engine.ErrClosed, "worker ends"},
	{engine.ErrDraining, "draining"},
	{requestplane.ErrDraining, "draining"},
	{requestplane.ErrUnknownEndpoint, "draining"},
	{engine.ErrQueueFull, "no room"},
	{engine.ErrNoBlocks, "no room"},
	{requestplane.ErrOverloaded, "no room"},
	{requestplane.ErrStopped, "the source released the sequence"},
	{requestplane.ErrClientGone, "source lost"},
	{requestplane.ErrCannotConnect, "target lost"},
	{requestplane.ErrDisconnected, "target lost"},
	{nixl.ErrRemoteDisconnect, "target lost"},
	{context.Canceled, "stopped"}, // the drain was taken back, or the worker ends
}

// handoverReason is the word for why a hand-over ended, "error" for what has none.
func handoverReason(err error) string {
	for _, r := range handoverReasons {
		if errors.Is(err, r.cause) {
			return r.word
		}
	}
	var remote *requestplane.RemoteError
	if errors.As(err, &remote) {
		return string(remote.Kind)
	}
	return "error"
}

// checkOffer refuses sequences whose KV means something else here than there.
func (w *Role) checkOffer(o *protocol.HandoverOffer) error {
	there := protocol.KVIdentity{
		ModelSum: o.Request.ModelSum, BlockSize: o.BlockSize, BlockBytes: o.BlockBytes, KVLayout: o.KVLayout, HashSeed: o.HashSeed,
	}
	if err := w.KV.Matches(there, o.Worker); err != nil {
		return err
	}
	for _, t := range o.Request.RequiredTaints {
		if !slices.Contains(w.Taints, t) {
			return fmt.Errorf("%w: %s on %s", errTaint, t, w.Worker)
		}
	}
	// The text would end earlier here than there.
	here := w.Engine.MaxModelLen()
	if want := min(len(o.Request.TokenIDs)+o.Request.Stop.MaxTokens, o.MaxModelLen); want > here {
		return fmt.Errorf("%w: the sequence may get %d tokens on %s and %d on %s", kv.ErrMismatch, want, o.Worker, here, w.Worker)
	}
	return nil
}
