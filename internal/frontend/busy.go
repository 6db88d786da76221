package frontend

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/router"
)

// Errors of a choice when the only worker that the request may go to is busy.
var (
	errNamedBusy   = fmt.Errorf("the worker that the request names: %w", router.ErrAllBusy)
	errSessionBusy = fmt.Errorf("the worker of the session: %w", router.ErrAllBusy)
)

// refuse returns an error if all decode workers are busy before a prefill worker computes
// the prompt, which would be lost.
func (g *generation) refuse(ctx context.Context) error {
	if g.strategy != protocol.StrategyPrefillFirst || g.f.cfg.Settings().Busy == (router.BusyLimits{}) {
		return nil // choose finds it out
	}
	begin := time.Now()
	list := g.f.candidates.take()
	defer g.f.candidates.give(list)
	_, r, v, reusable := g.view(list)
	d, err := g.f.load.Preview(r, v, g.policy().Pick)
	if err = g.named(err); !errors.Is(err, router.ErrAllBusy) {
		return nil
	}
	g.decided(d, r, reusable, begin)
	g.announce(ctx)
	return err
}

// named replaces the error of a choice among busy workers if the request allows only one.
func (g *generation) named(err error) error {
	switch {
	case !errors.Is(err, router.ErrAllBusy):
		return err
	case g.only.decode != 0:
		return errNamedBusy
	case g.held:
		return errSessionBusy
	}
	return err
}
