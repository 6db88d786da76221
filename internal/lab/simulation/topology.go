package simulation

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/profile"
	"github.com/dynctl/dynctl/internal/simulate"
	"github.com/dynctl/dynctl/internal/topofile"
)

// settings are the settings at run time that a simulation follows.
type settings struct {
	strategy, conditional, policy string
	overlap, enforce              bool
	maxLocal, maxQueue            int
	timeout                       time.Duration
	decodeBlocks, prefillFrac     float64
	prefillTokens                 int
}

// known are these settings by name, and what a setting without effect is not.
func (s *settings) known() map[string]any {
	return map[string]any{
		"disagg.strategy": &s.strategy, "disagg.conditional": &s.conditional, "disagg.overlap_kv_transfer": &s.overlap, "disagg.enforce": &s.enforce,
		"disagg.max_local_prefill_tokens": &s.maxLocal, "disagg.max_prefill_queue_depth": &s.maxQueue, "disagg.remote_prefill_timeout": &s.timeout,
		"router.policy": &s.policy, "router.active_decode_blocks_threshold": &s.decodeBlocks,
		"router.active_prefill_tokens_threshold": &s.prefillTokens, "router.active_prefill_tokens_threshold_frac": &s.prefillFrac,
	}
}

// read fills in the defaults of the settings, and then what a file sets. It returns the names
// of those that have no effect here.
func (s *settings) read(from map[string]json.RawMessage) (without []string, err error) {
	for name, into := range s.known() {
		key, err := config.RuntimeKey(name)
		if err != nil {
			return nil, err
		}
		v := key.Default
		if raw, set := from[name]; set {
			if v, err = key.DecodeRuntime(raw); err != nil {
				return nil, err
			}
		}
		if err := assign(into, v); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(from)) {
		if s.known()[name] == nil {
			without = append(without, name)
		}
	}
	return without, nil
}

// assign sets what into points to.
func assign(into, v any) error {
	ok := false
	switch p := into.(type) {
	case *string:
		*p, ok = v.(string)
	case *bool:
		*p, ok = v.(bool)
	case *int:
		*p, ok = v.(int)
	case *float64:
		*p, ok = v.(float64)
	case *time.Duration:
		*p, ok = v.(time.Duration)
	}
	if !ok {
		return fmt.Errorf("the table of settings has %T", v)
	}
	return nil
}

// Declared makes the simulation of what a topology file declares: numbers of workers, limits
// of engines over those of the profiles, and settings. without names the settings of the file
// that have no effect on a simulation. prefill is nil where prefill workers are as fast as
// decode workers.
func Declared(f topofile.File, decode, prefill *profile.Profile) (c simulate.Config, without []string, err error) {
	var s settings
	if without, err = s.read(f.Settings); err != nil {
		return c, nil, err
	}
	rule, err := cluster.ParseConditional(s.conditional)
	if err != nil {
		return c, nil, err
	}
	if prefill == nil {
		prefill = decode
	}
	t := f.Topology
	if len(t.Pools) > 0 {
		without = append(without, "pools")
	}
	if len(t.Attached) > 0 {
		without = append(without, "attached")
	}
	c = simulate.Config{
		Prefill: t.Prefill, Decode: t.Decode, Profile: limited(decode, t, cluster.RoleDecode), PrefillProfile: limited(prefill, t, cluster.RolePrefill),
		Policy: s.policy, Strategy: s.strategy, Sequential: !s.overlap, RemoteTimeout: s.timeout,
	}
	c.Disagg.MaxLocalTokens, c.Disagg.MaxQueueDepth, c.Disagg.Conditional, c.Disagg.Enforce = s.maxLocal, s.maxQueue, rule, s.enforce
	c.Busy.KVShare, c.Busy.PrefillTokens, c.Busy.PrefillSteps = s.decodeBlocks, s.prefillTokens, s.prefillFrac
	return c, without, nil
}

// limited is a profile with the limits that a topology declares for a role.
func limited(p *profile.Profile, t cluster.Topology, role cluster.Role) *profile.Profile {
	_, e := t.Specs(role)
	q := *p
	for _, f := range []struct {
		into *int
		of   int
	}{
		{&q.Limits.KVBlocks, e.KVBlocks}, {&q.Limits.BlockSize, e.BlockSize}, {&q.Limits.MaxSeqs, e.MaxSeqs},
		{&q.Limits.MaxBatchTokens, e.MaxBatchTokens}, {&q.Limits.MaxContext, e.MaxModelLen},
	} {
		if f.of > 0 {
			*f.into = f.of
		}
	}
	if e.ITLTargetMS > 0 {
		q.Limits.ITLTarget = float64(e.ITLTargetMS) / 1e3
	}
	return &q
}
