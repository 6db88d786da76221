package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/router"
	"github.com/dynctl/dynctl/internal/store"
	"github.com/dynctl/dynctl/internal/worker"
)

// knobs are the settings that change at run time: what the cluster's store says,
// and this node's configuration where it says nothing.
type knobs struct {
	a       *Agent
	watched *store.Prefix[json.RawMessage]
}

// Names of the knobs below the config prefix.
const (
	knobMaxLocal = "disagg.max_local_prefill_tokens"
	knobMaxQueue = "disagg.max_prefill_queue_depth"
	knobTimeout  = "disagg.remote_prefill_timeout"
)

func watchKnobs(ctx context.Context, a *Agent) (*knobs, error) {
	decode := func(kv store.KV) (json.RawMessage, error) { return json.RawMessage(kv.Value), nil }
	p, err := store.WatchPrefix(context.WithoutCancel(ctx), a.stores.store, cluster.KnobPrefix(a.cfg.Namespace), decode, a.log)
	if err != nil {
		return nil, fmt.Errorf("watch settings: %w", err)
	}
	return &knobs{a: a, watched: p}, nil
}

func (k *knobs) close() { k.watched.Close() }

// current returns the settings in force now. A value that cannot be read is
// ignored, so that a typing mistake does not stop a worker.
func (k *knobs) current() worker.Knobs {
	cfg := k.a.cfg.Disagg
	out := worker.Knobs{
		Prefill:       router.PrefillLimits{MaxLocalTokens: cfg.MaxLocalPrefillTokens, MaxQueueDepth: cfg.MaxPrefillQueueDepth},
		RemoteTimeout: cfg.RemotePrefillTimeout,
	}
	k.number(knobMaxLocal, &out.Prefill.MaxLocalTokens)
	k.number(knobMaxQueue, &out.Prefill.MaxQueueDepth)
	var text string
	if k.read(knobTimeout, &text) {
		if d, err := time.ParseDuration(text); err == nil && d > 0 {
			out.RemoteTimeout = d
		}
	}
	return out
}

func (k *knobs) number(name string, into *int) {
	var v int
	if k.read(name, &v) && v >= 0 {
		*into = v
	}
}

func (k *knobs) read(name string, into any) bool {
	raw, ok := k.watched.Get(cluster.KnobKey(k.a.cfg.Namespace, name))
	return ok && json.Unmarshal(raw, into) == nil
}
