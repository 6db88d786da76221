package agent

import (
	"context"
	"errors"
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
	at      map[string][]string // keys in the store by setting, the present name first
	watched *store.Prefix[any]  // typed values, nil for one that cannot be read
}

// Names of the settings below the config prefix.
const (
	settingStrategy = "disagg.strategy"
	settingOverlap  = "disagg.overlap_kv_transfer"
	settingMaxLocal = "disagg.max_local_prefill_tokens"
	settingMaxQueue = "disagg.max_prefill_queue_depth"
	settingTimeout  = "disagg.remote_prefill_timeout"
	settingRule     = "disagg.conditional"
	settingEnforce  = "disagg.enforce"
	settingPolicy   = "router.policy"

	settingDecodeBlocks  = "router.active_decode_blocks_threshold"
	settingPrefillTokens = "router.active_prefill_tokens_threshold"
	settingPrefillFrac   = "router.active_prefill_tokens_threshold_frac"
	settingAffinity      = "router.session_affinity"
	settingAffinityTTL   = "router.session_affinity_ttl"
	settingQueuePolicy   = "router.queue_policy"

	settingRecordLoad = "frontend.record_load"

	settingSurge       = "rollout.max_surge"
	settingUnavailable = "rollout.max_unavailable"

	settingPlannerMode        = "planner.mode"
	settingPlannerConnector   = "planner.connector"
	settingPlannerKubePrefill = "planner.kubernetes_prefill"
	settingPlannerKubeDecode  = "planner.kubernetes_decode"
	settingPlannerGoal        = "planner.goal"
	settingPlannerTTFT        = "planner.ttft"
	settingPlannerITL         = "planner.itl"
	settingPlannerPercentile  = "planner.percentile"
	settingPlannerDevices     = "planner.devices"
	settingPlannerPrefillMin  = "planner.prefill_min"
	settingPlannerPrefillMax  = "planner.prefill_max"
	settingPlannerDecodeMin   = "planner.decode_min"
	settingPlannerDecodeMax   = "planner.decode_max"
	settingPlannerPredictor   = "planner.predictor"
	settingPlannerInterval    = "planner.interval"
	settingPlannerForecast    = "planner.forecast_interval"
	settingPlannerCoolDown    = "planner.cool_down"
	settingPlannerThresholds  = "planner.thresholds"
	settingPlannerTimeout     = "planner.action_timeout"
)

func watchSettings(ctx context.Context, a *Agent) (*settings, error) {
	s := &settings{a: a, at: map[string][]string{}}
	stored := map[string]config.Key{} // by where they are stored
	for _, key := range config.RuntimeKeys() {
		for _, name := range append([]string{key.Name}, key.Former...) {
			at := cluster.SettingKey(a.cfg.Namespace, name)
			s.at[key.Name], stored[at] = append(s.at[key.Name], at), key
		}
	}
	decode := func(kv store.KV) (any, error) {
		key, known := stored[kv.Key]
		if !known { // of another release
			return nil, nil
		}
		v, err := key.DecodeRuntime(kv.Value)
		if err != nil { // a typing mistake must not stop a worker
			a.log.Warn("a setting of the cluster is ignored", "error", err)
		}
		return v, nil
	}
	p, err := store.WatchPrefix(context.WithoutCancel(ctx), a.stores.store, cluster.SettingPrefix(a.cfg.Namespace), decode, a.log)
	if err != nil {
		return nil, fmt.Errorf("watch settings: %w", err)
	}
	s.watched = p
	return s, nil
}

func (s *settings) close() { s.watched.Close() }

// settings returns the current settings. Each request asks for them.
func (s *settings) settings() (config.Disagg, config.Router) {
	d, r := s.a.cfg.Disagg, s.a.cfg.Router
	override(s, settingStrategy, &d.Strategy)
	override(s, settingOverlap, &d.OverlapKVTransfer)
	override(s, settingMaxLocal, &d.MaxLocalPrefillTokens)
	override(s, settingMaxQueue, &d.MaxPrefillQueueDepth)
	override(s, settingTimeout, &d.RemotePrefillTimeout)
	override(s, settingRule, &d.Conditional)
	override(s, settingEnforce, &d.Enforce)
	override(s, settingPolicy, &r.Policy)
	override(s, settingDecodeBlocks, &r.DecodeBlocks)
	override(s, settingPrefillTokens, &r.PrefillTokens)
	override(s, settingPrefillFrac, &r.PrefillTokensFrac)
	override(s, settingAffinity, &r.SessionAffinity)
	override(s, settingAffinityTTL, &r.SessionAffinityTTL)
	override(s, settingQueuePolicy, &r.QueuePolicy)
	return d, r
}

func override[T any](s *settings, name string, into *T) {
	for _, at := range s.at[name] {
		if v, ok := s.watched.Get(at); ok {
			if v != nil {
				*into = v.(T) // a test makes sure that the table has the type
			}
			return
		}
	}
}

func limitsOf(d config.Disagg) router.PrefillLimits {
	rule, _ := cluster.ParseConditional(d.Conditional) // the table of settings has read it
	return router.PrefillLimits{MaxLocalTokens: d.MaxLocalPrefillTokens, MaxQueueDepth: d.MaxPrefillQueueDepth, Conditional: rule, Enforce: d.Enforce}
}

// workers returns the settings of workers.
func (s *settings) workers() worker.Settings {
	d, _ := s.settings()
	return worker.Settings{Prefill: limitsOf(d), RemoteTimeout: d.RemotePrefillTimeout}
}

// rollout returns the settings of rollouts.
func (s *settings) rollout() cluster.Rollout {
	r := cluster.Rollout{MaxSurge: s.a.cfg.Rollout.MaxSurge, MaxUnavailable: s.a.cfg.Rollout.MaxUnavailable}
	override(s, settingSurge, &r.MaxSurge)
	override(s, settingUnavailable, &r.MaxUnavailable)
	return r
}

// frontend returns the settings of the frontend.
func (s *settings) frontend() frontend.Settings {
	d, r := s.settings()
	record := s.a.cfg.Frontend.RecordLoad
	override(s, settingRecordLoad, &record)
	return frontend.Settings{
		Policy: r.Policy, Strategy: d.Strategy, Background: d.OverlapKVTransfer,
		Prefill: limitsOf(d), RemoteTimeout: d.RemotePrefillTimeout,
		Busy:    router.BusyLimits{KVShare: r.DecodeBlocks, PrefillTokens: r.PrefillTokens, PrefillSteps: r.PrefillTokensFrac},
		Session: frontend.SessionSettings{Affinity: r.SessionAffinity, TTL: r.SessionAffinityTTL}, QueuePolicy: r.QueuePolicy,
		RecordLoad: record,
	}
}

// setBusy stores limits for all frontends of the namespace, as dynctl set does.
func (s *settings) setBusy(ctx context.Context, c frontend.BusyChange) error {
	put := func(name string, value any) error {
		if _, err := store.PutJSON(ctx, s.a.stores.store, cluster.SettingKey(s.a.cfg.Namespace, name), value); err != nil {
			return fmt.Errorf("set %s: %w", name, err)
		}
		return nil
	}
	var errs []error
	if c.KVShare != nil {
		errs = append(errs, put(settingDecodeBlocks, *c.KVShare))
	}
	if c.PrefillTokens != nil {
		errs = append(errs, put(settingPrefillTokens, *c.PrefillTokens))
	}
	if c.PrefillSteps != nil {
		errs = append(errs, put(settingPrefillFrac, *c.PrefillSteps))
	}
	return errors.Join(errs...)
}
