package role

import (
	"context"
	"errors"

	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/requestplane"
)

// RemoteError translates the engine's errors for the other side of the request
// plane: what cannot succeed anywhere, and what another worker may do.
func RemoteError(err error) error {
	if remote := (*requestplane.RemoteError)(nil); errors.As(err, &remote) {
		return remote
	}
	kind := requestplane.KindInternal
	switch {
	case errors.Is(err, engine.ErrBadRequest), errors.Is(err, engine.ErrTooLong), errors.Is(err, engine.ErrNothingAllowed), errors.Is(err, engine.ErrConstraintCost):
		kind = requestplane.KindInvalidArgument
	case errors.Is(err, engine.ErrQueueFull), errors.Is(err, engine.ErrNoBlocks):
		kind = requestplane.KindOverloaded
	case errors.Is(err, engine.ErrDraining), errors.Is(err, engine.ErrClosed):
		kind = requestplane.KindUnavailable
	case errors.Is(err, context.Canceled):
		kind = requestplane.KindCancelled
	}
	return &requestplane.RemoteError{Kind: kind, Message: err.Error()}
}
