package router

import (
	"fmt"
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
)

// threshold needs nothing but the prompt and the queue, and decides for others while no
// speed is known.
func TestDecidePrefill(t *testing.T) {
	limits := PrefillLimits{MaxLocalTokens: 64, MaxQueueDepth: 8}
	for _, tc := range []struct {
		s      PrefillState
		remote bool
		why    string
	}{
		{PrefillState{PromptTokens: 1000}, false, "no prefill worker"},
		{PrefillState{PromptTokens: 1000, PrefillWorkers: 1}, true, "long prompt"},
		{PrefillState{PromptTokens: 64, PrefillWorkers: 1}, false, "short"},
		{PrefillState{PromptTokens: 65, PrefillWorkers: 1}, true, "long prompt"},
		{PrefillState{PromptTokens: 1000, CachedTokens: 960, PrefillWorkers: 1}, false, "cached"},
		{PrefillState{PromptTokens: 1000, CachedTokens: 2000, PrefillWorkers: 1}, false, "cached"},
		{PrefillState{PromptTokens: 1000, PrefillWorkers: 1, QueueDepth: 8}, false, "queue full"},
		{PrefillState{PromptTokens: 10, PrefillWorkers: 1, QueueDepth: 99, Force: "remote"}, true, "forced"},
		{PrefillState{PromptTokens: 1000, PrefillWorkers: 1, Force: "local"}, false, "forced"},
		{PrefillState{PromptTokens: 1000, Force: "remote"}, false, "no prefill worker"},
	} {
		t.Run(fmt.Sprintf("%+v", tc.s), func(t *testing.T) {
			for _, rule := range []string{"", cluster.ConditionalThreshold, cluster.ConditionalSLO, cluster.ConditionalLeastDelay} { // no speed is known
				limits.Conditional.Rule = rule
				if remote, why := DecidePrefill(tc.s, limits); remote != tc.remote || why != tc.why {
					t.Errorf("rule %q: got %t %q, want %t %q", rule, remote, why, tc.remote, tc.why)
				}
			}
		})
	}
}

// The truth tables of Dynamo 1.5's rules. The limits of threshold, which would keep every
// prompt here, play no part.
func TestConditionalRules(t *testing.T) {
	share := func(v float64) *float64 { return &v }
	load := func(waiting, step int) PrefillPlace { return PrefillPlace{Waiting: waiting, StepTokens: step} }
	off, isl, busy, either := cluster.ConditionalOff, cluster.ConditionalISLBounding, cluster.ConditionalPrefillLoad, cluster.ConditionalISLOrLoad
	for _, tc := range []struct {
		rule   string
		s      PrefillState
		guard  float64
		remote bool
		why    string
	}{
		{off, PrefillState{PromptTokens: 10, CachedTokens: 9}, 0, true, "always remote"},
		{isl, PrefillState{PromptTokens: 8000, CachedTokens: 5953}, 0, false, "cached"},
		{isl, PrefillState{PromptTokens: 8000, CachedTokens: 5952}, 0, true, "long prompt"},         // 2048 is not below 2048
		{isl, PrefillState{PromptTokens: 1000, CachedTokens: 300}, 0, true, "long prompt"},          // 0.7 is not below 0.7
		{isl, PrefillState{PromptTokens: 1000, CachedTokens: 301}, 0, false, "cached"},              //
		{isl, PrefillState{PromptTokens: 10}, 0, true, "long prompt"},                               // all of it is new
		{isl, PrefillState{}, 0, false, "short"},                                                    // nothing of nothing
		{isl, PrefillState{PromptTokens: 100, CachedTokens: 200}, 0, false, "cached"},               // more than all
		{isl, PrefillState{PromptTokens: 1000, CachedTokens: 900}, 0.5, true, "decode worker busy"}, // no signal
		{isl, PrefillState{PromptTokens: 1000, CachedTokens: 900, Decode: PrefillPlace{KVShare: share(0.6)}}, 0.5, true, "decode worker busy"},
		{isl, PrefillState{PromptTokens: 1000, CachedTokens: 900, Decode: PrefillPlace{KVShare: share(0.5)}}, 0.5, false, "cached"},
		{isl, PrefillState{PromptTokens: 1000, CachedTokens: 900, Prefill: load(9999, 100)}, 0, false, "cached"},
		{isl, PrefillState{PromptTokens: 1000, Prefill: load(9999, 100)}, 0, true, "long prompt"},
		{busy, PrefillState{PromptTokens: 9000, Prefill: load(201, 100)}, 0, false, "prefill worker busy"},
		{busy, PrefillState{PromptTokens: 9000, Prefill: load(200, 100)}, 0, true, "prefill worker free"},
		{busy, PrefillState{PromptTokens: 9000, Prefill: load(201, 0)}, 0, true, "prefill worker free"}, // no signal
		{busy, PrefillState{PromptTokens: 9, CachedTokens: 8}, 0, true, "prefill worker free"},
		{busy, PrefillState{PromptTokens: 9000, Prefill: load(201, 100), Decode: PrefillPlace{KVShare: share(0.6)}}, 0.5, true, "decode worker busy"},
		{either, PrefillState{PromptTokens: 9000, Prefill: load(201, 100)}, 0, false, "prefill worker busy"},
		{either, PrefillState{PromptTokens: 1000, CachedTokens: 900, Prefill: load(0, 100)}, 0, false, "cached"},
		{either, PrefillState{PromptTokens: 9000, Prefill: load(0, 100)}, 0, true, "long prompt"},
	} {
		tc.s.PrefillWorkers, tc.s.QueueDepth = 1, 99
		l := PrefillLimits{MaxLocalTokens: 1 << 30, Conditional: cluster.Conditional{Rule: tc.rule, Tokens: 2048, Ratio: 0.7, PrefillBusy: 2, DecodeBusy: tc.guard}}
		if remote, why := DecidePrefill(tc.s, l); remote != tc.remote || why != tc.why {
			t.Errorf("%s, %+v: got %t %q, want %t %q", tc.rule, tc.s, remote, why, tc.remote, tc.why)
		}
		tc.s.PrefillWorkers = 0
		if remote, why := DecidePrefill(tc.s, l); remote || why != WhyNoPrefill {
			t.Errorf("%s without a prefill worker: %t %q", tc.rule, remote, why)
		}
	}
}

// slo takes the place where the KV is sooner, by measured speeds.
func TestSLORule(t *testing.T) {
	full := 0.51
	half := PrefillPlace{Uncached: 500, Rate: 100, KVShare: &full}
	at := func(uncached, waiting int, rate float64) PrefillPlace {
		return PrefillPlace{Uncached: uncached, Waiting: waiting, Rate: rate}
	}
	for _, tc := range []struct {
		name            string
		decode, prefill PrefillPlace
		transfer        float64
		overlaps        bool
		remote          bool
	}{
		{"equal, and moving costs nothing", at(1000, 0, 100), at(1000, 0, 100), 0, false, true},
		{"equal, and moving takes a second", at(1000, 0, 100), at(1000, 0, 100), 1000, false, false},
		{"moved while it is computed", at(1000, 0, 100), at(1000, 0, 100), 1000, true, true},
		{"moved slower than computed", at(1000, 0, 100), at(1000, 0, 100), 99, true, false},
		{"a slower decode worker", at(1000, 0, 90), at(1000, 0, 100), 1000, false, true},
		{"queue at the decode worker", at(1000, 101, 100), at(1000, 0, 100), 1000, false, true},
		{"queue at the prefill worker", at(1000, 1000, 100), at(1000, 1001, 100), 0, false, false},
		{"much decoded there", half, at(1000, 0, 100), 0, false, true},
		{"cached at the decode worker", at(100, 0, 100), at(1000, 0, 100), 0, false, false},
		{"cached at the prefill worker", at(1000, 0, 100), at(100, 0, 100), 1000, false, true},
	} {
		s := PrefillState{PromptTokens: 1000, PrefillWorkers: 1, Decode: tc.decode, Prefill: tc.prefill, TransferRate: tc.transfer, TransferOverlaps: tc.overlaps}
		want := map[bool]string{false: "sooner locally", true: "sooner remotely"}[tc.remote]
		// The limits say the opposite of what is right.
		l := PrefillLimits{MaxQueueDepth: 1, Conditional: cluster.Conditional{Rule: cluster.ConditionalSLO}}
		if tc.remote {
			l.MaxLocalTokens = 1 << 30
		}
		if remote, why := DecidePrefill(s, l); remote != tc.remote || why != want {
			t.Errorf("%s: %t %q", tc.name, remote, why)
		}
		for _, unknown := range []*float64{&s.Decode.Rate, &s.Prefill.Rate} {
			known := *unknown
			*unknown = 0
			if remote, why := DecidePrefill(s, l); remote == tc.remote || why == want {
				t.Errorf("%s, with an unknown speed: %t %q, want what the limits say", tc.name, remote, why)
			}
			*unknown = known
		}
	}
}

// least-delay counts what a prompt costs others, too.
func TestLeastDelay(t *testing.T) {
	// Of a pool of 10,000 tokens 4,000 are in use, and 1,000 will be with the prompt: the price
	// of a local second is 1/(1-0.5)² = 4. A remote one that keeps the prompt's blocks costs
	// 1 + 0.1*(4-1) = 1.3.
	decode := func(change func(*PrefillPlace)) PrefillPlace {
		share := 0.4
		p := PrefillPlace{Uncached: 1000, Rate: 100, KVTokens: 10000, KVShare: &share}
		if change != nil {
			change(&p)
		}
		return p
	}
	full := func(p *PrefillPlace) { *p.KVShare = 1 }
	prefill := func(uncached, waiting int, prompts float64) PrefillPlace {
		return PrefillPlace{Uncached: uncached, Waiting: waiting, Prompts: prompts, Rate: 100}
	}
	for _, tc := range []struct {
		name            string
		decode, prefill PrefillPlace
		transfer        float64
		apart           bool // the decode worker keeps no blocks meanwhile
		remote          bool
	}{
		{name: "idle and equal", decode: PrefillPlace{Uncached: 1000, Rate: 100}, prefill: prefill(1000, 0, 0), remote: true},
		{name: "idle, and the decode worker is faster", decode: PrefillPlace{Uncached: 1000, Rate: 101}, prefill: prefill(1000, 0, 0)},
		{name: "the prompt takes room", decode: PrefillPlace{Uncached: 1000, Rate: 110, KVTokens: 10000}, prefill: prefill(1000, 0, 0), remote: true},
		{name: "up to the price", decode: decode(nil), prefill: prefill(3076, 0, 0), remote: true},
		{name: "above it", decode: decode(nil), prefill: prefill(3077, 0, 0)},
		{name: "up to the price without blocks kept", decode: decode(nil), prefill: prefill(4000, 0, 0), apart: true, remote: true},
		{name: "above it", decode: decode(nil), prefill: prefill(4001, 0, 0), apart: true},
		{name: "what waits there counts", decode: decode(nil), prefill: prefill(1000, 2077, 0)},
		{name: "what will come behind does", decode: decode(nil), prefill: prefill(1000, 0, 2.08)},
		{name: "just not enough", decode: decode(nil), prefill: prefill(1000, 0, 2.07), remote: true},
		{name: "what will come behind here", decode: decode(func(p *PrefillPlace) { p.Prompts = 1 }), prefill: prefill(6153, 0, 0), remote: true},
		{name: "what waits here", decode: decode(func(p *PrefillPlace) { p.Waiting = 1000 }), prefill: prefill(3845, 0, 0), remote: true},
		{name: "not more", decode: decode(func(p *PrefillPlace) { p.Waiting = 1000 }), prefill: prefill(3847, 0, 0)},
		{name: "a slow transfer", decode: decode(nil), prefill: prefill(1000, 0, 0), transfer: 30},
		{name: "a full decode worker lets ten such prompts wait", decode: decode(full), prefill: prefill(1000, 9000, 0), remote: true},
		{name: "and no more", decode: decode(full), prefill: prefill(1000, 9001, 0)},
		{name: "any number without blocks kept", decode: decode(full), prefill: prefill(1000, 1e6, 50), apart: true, remote: true},
		{name: "a short rest of a long prompt", decode: decode(func(p *PrefillPlace) { p.Uncached = 90 }), prefill: prefill(1000, 0, 0)},
	} {
		s := PrefillState{PromptTokens: 1000, PrefillWorkers: 1, Decode: tc.decode, Prefill: tc.prefill, TransferRate: tc.transfer, TransferOverlaps: !tc.apart}
		want := map[bool]string{false: "less delay locally", true: "less delay remotely"}[tc.remote]
		l := PrefillLimits{MaxQueueDepth: 1, Conditional: cluster.Conditional{Rule: cluster.ConditionalLeastDelay}}
		if remote, why := DecidePrefill(s, l); remote != tc.remote || why != want {
			t.Errorf("%s: %t %q", tc.name, remote, why)
		}
		s.Prefill.Rate = 0
		if remote, why := DecidePrefill(s, l); !remote || why != "long prompt" {
			t.Errorf("%s, with an unknown speed: %t %q, want what the limits say", tc.name, remote, why)
		}
	}
}

// With Enforce, only what the rule keeps local anyway is local without a prefill worker.
func TestEnforce(t *testing.T) {
	l := PrefillLimits{MaxLocalTokens: 64, MaxQueueDepth: 8, Enforce: true}
	for _, tc := range []struct {
		s       PrefillState
		why     string
		refused bool
	}{
		{PrefillState{PromptTokens: 64}, "short", false},
		{PrefillState{PromptTokens: 1000, CachedTokens: 960}, "cached", false},
		{PrefillState{PromptTokens: 1000, Force: "local"}, "forced", false},
		{PrefillState{PromptTokens: 1000}, WhyNoPrefill, true},
		{PrefillState{PromptTokens: 10, Force: "remote"}, WhyNoPrefill, true},
		{PrefillState{PromptTokens: 1000, QueueDepth: 8}, WhyNoPrefill, true},
		{PrefillState{PromptTokens: 1000, QueueDepth: 8, PrefillWorkers: 1}, WhyQueueFull, true},
	} {
		if remote, why := DecidePrefill(tc.s, l); remote || why != tc.why || StandsIn(why) != tc.refused {
			t.Errorf("%+v: %t %q, refused %t", tc.s, remote, why, StandsIn(why))
		}
	}
}
