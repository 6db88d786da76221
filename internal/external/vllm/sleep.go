package vllm

import (
	"context"
	"strconv"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/external/wire"
)

// CanSleep implements external.Sleeper. A server without --enable-sleep-mode has the paths, too:
// that shows only when it does not sleep.
func (e *Engine) CanSleep(ctx context.Context, _ int) error {
	_, err := e.asleep(ctx)
	return sleepError(ctx, err)
}

// Sleep implements external.Sleeper.
func (e *Engine) Sleep(ctx context.Context, level int) error {
	if _, err := e.client.Compute(ctx, "/sleep?level="+strconv.Itoa(level), nil, nil); err != nil {
		return sleepError(ctx, err)
	}
	asleep, err := e.asleep(ctx)
	if err == nil && !asleep {
		return errNoSleep
	}
	return sleepError(ctx, err)
}

// Wake implements external.Sleeper. Weights are loaded before the KV cache takes the memory that
// loading may need.
func (e *Engine) Wake(ctx context.Context, level int) error {
	steps := []struct{ path, body string }{{"/wake_up", ""}}
	if level > cluster.SleepLight {
		steps = []struct{ path, body string }{
			{"/wake_up?tags=weights", ""}, {pathCollective, `{"method":"reload_weights"}`}, {"/wake_up?tags=kv_cache", ""},
		}
	}
	for _, s := range steps {
		_, err := e.client.Compute(ctx, s.path, nil, []byte(s.body))
		if s.path == pathCollective && wire.Missing(err) {
			return errNoReload
		}
		if err != nil {
			return sleepError(ctx, err)
		}
	}
	asleep, err := e.asleep(ctx)
	if err == nil && asleep {
		return wire.Unavailable("the server sleeps on")
	}
	return sleepError(ctx, err)
}

// Asleep implements external.Sleeper. A server that has no such path does not sleep.
func (e *Engine) Asleep(ctx context.Context) (bool, error) {
	asleep, err := e.asleep(ctx)
	if wire.Missing(err) {
		return false, nil
	}
	return asleep, wire.Remote(ctx, err)
}

func (e *Engine) asleep(ctx context.Context) (bool, error) {
	var s struct {
		Sleeping bool `json:"is_sleeping"`
	}
	err := e.client.GetJSON(ctx, "/is_sleeping", &s)
	return s.Sleeping, err
}

// pathCollective is where a server takes calls of methods of all its workers, in development mode.
const pathCollective = "/collective_rpc"

var errNoReload = wire.Unavailable("the server has no " + pathCollective + " by which it would load its weights again, as it must if it slept at level 2: restart it, or wake it there if it slept at level 1")

var errNoSleep = wire.Unavailable("the server does not sleep: it takes --enable-sleep-mode and VLLM_SERVER_DEV_MODE=1")

func sleepError(ctx context.Context, err error) error {
	if wire.Missing(err) {
		return errNoSleep
	}
	return wire.Remote(ctx, err)
}
