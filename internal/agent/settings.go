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

// settings holds the settings that change at run time: values in the cluster's store, and
// this node's configuration for the others.
type settings struct {
	a       *Agent
	keys    map[string]config.Key
	watched *store.Prefix[json.RawMessage]
}

// Names of the settings below the config prefix.
const (
	settingStrategy = "disagg.strategy"
	settingOverlap  = "disagg.overlap_kv_transfer"
	settingMaxLocal = "disagg.max_local_prefill_tokens"
	settingMaxQueue = "disagg.max_prefill_queue_depth"
	settingTimeout  = "disagg.remote_prefill_timeout"
	settingPolicy   = "router.policy"
)

func watchSettings(ctx context.Context, a *Agent) (*settings, error) {
	decode := func(kv store.KV) (json.RawMessage, error) { return json.RawMessage(kv.Value), nil }
	p, err := store.WatchPrefix(context.WithoutCancel(ctx), a.stores.store, cluster.SettingPrefix(a.cfg.Namespace), decode, a.log)
	if err != nil {
		return nil, fmt.Errorf("watch settings: %w", err)
	}
	s := &settings{a: a, keys: map[string]config.Key{}, watched: p}
	for _, key := range config.RuntimeKeys() {
		s.keys[key.Name] = key
	}
	return s, nil
}

func (s *settings) close() { s.watched.Close() }

// settings returns the current settings. It ignores a value that cannot be read, so that
// a typing mistake does not stop a worker.
func (s *settings) settings() (config.Disagg, config.Router) {
	d, r := s.a.cfg.Disagg, s.a.cfg.Router
	override(s, settingStrategy, &d.Strategy)
	override(s, settingOverlap, &d.OverlapKVTransfer)
	override(s, settingMaxLocal, &d.MaxLocalPrefillTokens)
	override(s, settingMaxQueue, &d.MaxPrefillQueueDepth)
	override(s, settingTimeout, &d.RemotePrefillTimeout)
	override(s, settingPolicy, &r.Policy)
	return d, r
}

func override[T any](s *settings, name string, into *T) {
	key := s.keys[name]
	for _, name := range append([]string{name}, key.Former...) {
		raw, ok := s.watched.Get(cluster.SettingKey(s.a.cfg.Namespace, name))
		if !ok {
			continue
		}
		if v, err := key.DecodeRuntime(raw); err == nil {
			*into = v.(T) // a test makes sure that the table has the type
		}
		return
	}
}

func limitsOf(d config.Disagg) router.PrefillLimits {
	return router.PrefillLimits{MaxLocalTokens: d.MaxLocalPrefillTokens, MaxQueueDepth: d.MaxPrefillQueueDepth}
}

// workers returns the settings of workers.
func (s *settings) workers() worker.Settings {
	d, _ := s.settings()
	return worker.Settings{Prefill: limitsOf(d), RemoteTimeout: d.RemotePrefillTimeout}
}

// frontend returns the settings of the frontend.
func (s *settings) frontend() frontend.Settings {
	d, r := s.settings()
	return frontend.Settings{
		Policy: r.Policy, Strategy: d.Strategy, Background: d.OverlapKVTransfer,
		Prefill: limitsOf(d), RemoteTimeout: d.RemotePrefillTimeout,
	}
}
