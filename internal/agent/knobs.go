package agent

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/frontend"
	"github.com/dynctl/dynctl/internal/router"
	"github.com/dynctl/dynctl/internal/store"
	"github.com/dynctl/dynctl/internal/worker"
)

// knobs are the settings that change at run time: what the cluster's store says,
// and this node's configuration where it says nothing.
type knobs struct {
	a       *Agent
	keys    map[string]config.Key
	watched *store.Prefix[json.RawMessage]
}

// Names of the knobs below the config prefix.
const (
	knobStrategy   = "disagg.strategy"
	knobBackground = "disagg.background_prefill"
	knobMaxLocal   = "disagg.max_local_prefill_tokens"
	knobMaxQueue   = "disagg.max_prefill_queue_depth"
	knobTimeout    = "disagg.remote_prefill_timeout"
	knobPolicy     = "router.policy"
)

func watchKnobs(ctx context.Context, a *Agent) (*knobs, error) {
	decode := func(kv store.KV) (json.RawMessage, error) { return json.RawMessage(kv.Value), nil }
	p, err := store.WatchPrefix(context.WithoutCancel(ctx), a.stores.store, cluster.KnobPrefix(a.cfg.Namespace), decode, a.log)
	if err != nil {
		return nil, fmt.Errorf("watch settings: %w", err)
	}
	k := &knobs{a: a, keys: map[string]config.Key{}, watched: p}
	for _, key := range config.RuntimeKeys() {
		k.keys[key.Name] = key
	}
	return k, nil
}

func (k *knobs) close() { k.watched.Close() }

// settings are the ones in force now. A value that cannot be read is ignored, so that
// a typing mistake does not stop a worker.
func (k *knobs) settings() (config.Disagg, config.Router) {
	d, r := k.a.cfg.Disagg, k.a.cfg.Router
	override(k, knobStrategy, &d.Strategy)
	override(k, knobBackground, &d.BackgroundPrefill)
	override(k, knobMaxLocal, &d.MaxLocalPrefillTokens)
	override(k, knobMaxQueue, &d.MaxPrefillQueueDepth)
	override(k, knobTimeout, &d.RemotePrefillTimeout)
	override(k, knobPolicy, &r.Policy)
	return d, r
}

func override[T any](k *knobs, name string, into *T) {
	raw, ok := k.watched.Get(cluster.KnobKey(k.a.cfg.Namespace, name))
	if !ok {
		return
	}
	if v, err := k.keys[name].DecodeRuntime(raw); err == nil {
		*into = v.(T) // the table says so, which a test makes sure of
	}
}

func limitsOf(d config.Disagg) router.PrefillLimits {
	return router.PrefillLimits{MaxLocalTokens: d.MaxLocalPrefillTokens, MaxQueueDepth: d.MaxPrefillQueueDepth}
}

// workers is what workers need of the settings.
func (k *knobs) workers() worker.Knobs {
	d, _ := k.settings()
	return worker.Knobs{Prefill: limitsOf(d), RemoteTimeout: d.RemotePrefillTimeout}
}

// frontend is what the frontend needs of them.
func (k *knobs) frontend() frontend.Knobs {
	d, r := k.settings()
	return frontend.Knobs{
		Policy: r.Policy, Strategy: d.Strategy, Background: d.BackgroundPrefill,
		Prefill: limitsOf(d), RemoteTimeout: d.RemotePrefillTimeout,
	}
}
