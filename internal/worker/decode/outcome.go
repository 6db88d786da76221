package decode

import (
	"errors"
	"fmt"

	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/worker/kv"
)

// whyQuarantined is the reason of a local prefill whose first blocks may still be
// written by somebody.
const whyQuarantined = "writer not stopped"

var (
	errRemoteTimeout = errors.New("remote prefill timed out")
	errNoPrefill     = errors.New("no prefill worker left")
	errPrefillLost   = errors.New("prefill worker lost")
	errPrefillFailed = errors.New("prefill worker failed")
	errPullFailed    = errors.New("KV not read")
	errNoTicket      = errors.New("no ticket")
	errQueueLost     = fmt.Errorf("the message was not fetched: %w", events.ErrUnavailable)
)

// fallbackReason is the short form of an error that operators see in the router
// pane.
func fallbackReason(err error) string {
	for _, known := range []error{errRemoteTimeout, kv.ErrMismatch, errNoPrefill, errPrefillLost, errPrefillFailed, errPullFailed, errNoTicket, events.ErrFull} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	if errors.Is(err, events.ErrUnavailable) {
		return "queue unreachable"
	}
	return "error"
}

// notPrefilled ends a request whose prompt must not be prefilled here.
func notPrefilled(why string) error {
	return &requestplane.RemoteError{Kind: requestplane.KindNotPrefilled, Message: why}
}

// checkNotice says whether a final notice means that all KV is in place.
func checkNotice(n protocol.PrefillNotice, req protocol.RemotePrefillRequest) error {
	switch {
	case n.Phase != protocol.PrefillDone:
		return fmt.Errorf("%w: %s: %s", errPrefillFailed, n.Worker, n.Error)
	case n.Tokens != len(req.TokenIDs):
		return fmt.Errorf("%w: %s wrote %d of %d tokens", errPrefillFailed, n.Worker, n.Tokens, len(req.TokenIDs))
	}
	return nil
}
