package sglang

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/external/wire"
)

// regions are the parts of the memory that a server gives back, in the order in which it takes
// them again. They are named: what it is told to take again without having given it back ends it.
const regions = `{"tags":["weights","kv_cache"]}`

// CanSleep implements external.Sleeper.
func (e *Engine) CanSleep(ctx context.Context, level int) error {
	s, err := e.serverInfo(ctx)
	switch {
	case err != nil:
		return wire.Remote(ctx, err)
	case !s.MemorySaver:
		return wire.Unavailable("the server does not sleep: it takes --enable-memory-saver")
	case level == cluster.SleepLight && !s.WeightsBackup:
		return wire.Unavailable("the server would lose its weights: it takes --enable-weights-cpu-backup, or sleep at level 2, after which it loads them again")
	case level > cluster.SleepLight && s.Model == "":
		return wire.Unavailable("the server does not tell from where it would load its weights again")
	}
	return nil
}

// Sleep implements external.Sleeper.
func (e *Engine) Sleep(ctx context.Context, level int) error {
	if err := e.CanSleep(ctx, level); err != nil {
		return err
	}
	if _, err := e.client.Compute(ctx, "/release_memory_occupation", nil, []byte(regions)); err != nil {
		return wire.Remote(ctx, err)
	}
	e.asleep.Store(true)
	return nil
}

// Wake implements external.Sleeper.
func (e *Engine) Wake(ctx context.Context, level int) error {
	if e.asleep.Load() {
		if _, err := e.client.Compute(ctx, "/resume_memory_occupation", nil, []byte(regions)); err != nil {
			return wire.Remote(ctx, err)
		}
		e.asleep.Store(false)
	}
	if level == cluster.SleepLight {
		return nil
	}
	return wire.Remote(ctx, e.reload(ctx))
}

// maxReason bounds what is told of a failure, in bytes.
const maxReason = 300

// reload has the server load its weights from where it has loaded them before.
func (e *Engine) reload(ctx context.Context) error {
	s, err := e.serverInfo(ctx)
	if err != nil {
		return err
	}
	var o wire.Object
	o.Text("model_path", s.Model)
	b, err := e.client.Compute(ctx, "/update_weights_from_disk", nil, o.Bytes())
	if err != nil {
		return err
	}
	var done struct {
		Success bool   `json:"success"`
		Message string `json:"message"`
	}
	if err := json.Unmarshal(b, &done); err != nil {
		return fmt.Errorf("/update_weights_from_disk: %w", err)
	}
	if !done.Success {
		return wire.Unavailable("the server has not loaded its weights: %s", strings.ToValidUTF8(done.Message[:min(len(done.Message), maxReason)], ""))
	}
	return nil
}

// Asleep implements external.Sleeper: a server cannot be asked, so this is what the last order
// was.
func (e *Engine) Asleep(context.Context) (bool, error) { return e.asleep.Load(), nil }
