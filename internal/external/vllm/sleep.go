package vllm

import (
	"context"

	"github.com/dynctl/dynctl/internal/external/wire"
)

// Sleep implements external.Sleeper: the weights go to the host's memory.
func (e *Engine) Sleep(ctx context.Context) error {
	if _, err := e.client.Compute(ctx, "/sleep?level=1", nil, nil); err != nil {
		return sleepError(ctx, err)
	}
	asleep, err := e.Asleep(ctx)
	if err == nil && !asleep {
		err = errNoSleep
	}
	return err
}

// Wake implements external.Sleeper.
func (e *Engine) Wake(ctx context.Context) error {
	_, err := e.client.Compute(ctx, "/wake_up", nil, nil)
	return sleepError(ctx, err)
}

// Asleep implements external.Sleeper.
func (e *Engine) Asleep(ctx context.Context) (bool, error) {
	var s struct {
		Sleeping bool `json:"is_sleeping"`
	}
	err := e.client.GetJSON(ctx, "/is_sleeping", &s)
	return s.Sleeping, sleepError(ctx, err)
}

var errNoSleep = wire.Unavailable("the server does not sleep: it takes --enable-sleep-mode and VLLM_SERVER_DEV_MODE=1")

func sleepError(ctx context.Context, err error) error {
	if wire.Missing(err) {
		return errNoSleep
	}
	return wire.Remote(ctx, err)
}
