package router

import "github.com/dynctl/dynctl/internal/cluster"

// PrefillLimits say when a decode worker prefills. They change at run time.
type PrefillLimits struct {
	// MaxLocalTokens is the largest number of uncached prompt tokens that a decode
	// worker prefills itself, and MaxQueueDepth is the queue length from which remote
	// prefill takes too long: the rule threshold.
	MaxLocalTokens, MaxQueueDepth int
	// Conditional is the rule; the zero value is that of threshold, which also decides for
	// rules that compare speeds while one is unknown.
	Conditional cluster.Conditional
	// Enforce refuses a prompt that no prefill worker can compute, unless a rule keeps it
	// local by its length or by speed.
	Enforce bool
}

// PrefillState is the input of the disaggregation decision.
type PrefillState struct {
	// CachedTokens is what the decode worker has of the prompt.
	PromptTokens, CachedTokens int
	PrefillWorkers             int // ready now
	QueueDepth                 int
	// Force overrides the rules: "remote", "local" or "".
	Force string

	// Decode and Prefill are the two workers that may compute the prompt; the zero value
	// knows nothing of them.
	Decode, Prefill PrefillPlace
	// TransferRate is the speed at which KV moves between them, in tokens per second; 0 if
	// unknown. If TransferOverlaps, it moves while later KV is computed, into blocks that the
	// decode worker keeps free from the beginning.
	TransferRate     float64
	TransferOverlaps bool
}

// PrefillPlace is a worker that may compute a prompt.
type PrefillPlace struct {
	Uncached   int     // tokens of the prompt that it would compute
	Waiting    int     // tokens of other prompts that it has to compute before
	Prompts    float64 // the number of these prompts
	Rate       float64 // tokens per second; 0 if unknown
	StepTokens int     // the most of one step; 0 if unknown
	// KVTokens is the size of its KV pool in tokens; 0 if unknown. KVShare is the share of it
	// that is in use; nil if unknown.
	KVTokens int
	KVShare  *float64
}

// Reasons of decisions.
const (
	// WhyQueueFull is the reason for a local prefill when the prefill queue is too long.
	WhyQueueFull = "queue full"
	WhyNoPrefill = "no prefill worker"
	// Reasons for a local prefill that a frontend finds when it asks prefill workers.
	WhyPrefillFailed  = "prefill worker failed"
	WhyPrefillTimeout = "remote prefill timed out"
	WhyPrefillsBusy   = "prefill workers busy"
	WhyNoOtherPrefill = "no other prefill worker" // none that has not failed
	whyForced         = "forced"
	whyShort          = "short"
	whyCached         = "cached"
	whyLong           = "long prompt"
	whyOff            = "always remote"
	whyPrefillBusy    = "prefill worker busy"
	whyPrefillFree    = "prefill worker free"
	whyDecodeBusy     = "decode worker busy"
	whySoonerHere     = "sooner locally"
	whySoonerThere    = "sooner remotely"
	whyDelaysLessHere = "less delay locally"
	whyDelaysMore     = "less delay remotely"
)

// StandsIn reports whether a local prefill for that reason stands in for a remote one: with
// [PrefillLimits.Enforce] it is refused.
func StandsIn(why string) bool {
	switch why {
	case WhyNoPrefill, WhyQueueFull, WhyPrefillFailed, WhyPrefillTimeout, WhyPrefillsBusy, WhyNoOtherPrefill:
		return true
	}
	return false
}

// DecidePrefill decides whether a prompt is prefilled remotely, and gives a short reason.
func DecidePrefill(s PrefillState, l PrefillLimits) (remote bool, why string) {
	s.CachedTokens = max(0, min(s.CachedTokens, s.PromptTokens))
	switch {
	case s.PrefillWorkers == 0 && l.Enforce: // what stays local anyway needs none
		s.PrefillWorkers = 1
		if remote, why = DecidePrefill(s, l); remote || why == WhyQueueFull {
			return false, WhyNoPrefill
		}
		return false, why
	case s.PrefillWorkers == 0:
		return false, WhyNoPrefill
	case s.Force == "local":
		return false, whyForced
	case s.Force == "remote":
		return true, whyForced
	}
	c := l.Conditional
	switch c.Rule {
	case cluster.ConditionalOff:
		return true, whyOff
	case cluster.ConditionalISLBounding:
		return guarded(s, c, bounded(s, c), false)
	case cluster.ConditionalPrefillLoad:
		return guarded(s, c, false, busy(s, c))
	case cluster.ConditionalISLOrLoad:
		return guarded(s, c, bounded(s, c), busy(s, c))
	case cluster.ConditionalLeastDelay:
		if local, remote, known := delays(s); known {
			if local < remote {
				return false, whyDelaysLessHere
			}
			return true, whyDelaysMore
		}
	case cluster.ConditionalSLO:
		if local, remote, known := times(s); known {
			if local < remote {
				return false, whySoonerHere
			}
			return true, whySoonerThere
		}
	}
	return threshold(s, l)
}

// threshold is the rule of Dynamo 0.2: remote if the uncached part is long and the queue is
// short.
func threshold(s PrefillState, l PrefillLimits) (remote bool, why string) {
	switch {
	case s.PromptTokens-s.CachedTokens <= l.MaxLocalTokens:
		if s.CachedTokens > 0 && s.PromptTokens > l.MaxLocalTokens {
			return false, whyCached
		}
		return false, whyShort
	case s.QueueDepth >= l.MaxQueueDepth:
		return false, WhyQueueFull
	}
	return true, whyLong
}

// bounded reports that little of a prompt is uncached at the decode worker, absolutely and
// relatively.
func bounded(s PrefillState, c cluster.Conditional) bool {
	uncached := s.PromptTokens - s.CachedTokens
	return uncached < c.Tokens && float64(uncached) < c.Ratio*float64(max(1, s.PromptTokens))
}

// busy reports that more prompts wait at the prefill worker than it computes in some steps.
func busy(s PrefillState, c cluster.Conditional) bool {
	p := s.Prefill
	return p.StepTokens > 0 && float64(p.Waiting) > c.PrefillBusy*float64(p.StepTokens)
}

// guarded decides by a rule of Dynamo 1.5, unless the decode worker is busy, or may be.
func guarded(s PrefillState, c cluster.Conditional, bounded, busy bool) (remote bool, why string) {
	share := s.Decode.KVShare
	switch {
	case !bounded && !busy && c.Rule == cluster.ConditionalPrefillLoad:
		return true, whyPrefillFree
	case !bounded && !busy:
		return true, whyLong
	case c.DecodeBusy > 0 && (share == nil || *share > c.DecodeBusy):
		return true, whyDecodeBusy
	case !bounded:
		return false, whyPrefillBusy
	case s.CachedTokens > 0:
		return false, whyCached
	}
	return false, whyShort
}

// times estimates in how many seconds the prompt is computed at the decode worker, and in
// how many it is there when the prefill worker computes it. Prompts of a decode worker hold
// up the answers that it decodes, so the share of its KV pool in use reduces its speed: a
// full one gets none. known is false while the speed of one of them is unknown.
func times(s PrefillState) (local, remote float64, known bool) {
	d, p := s.Decode, s.Prefill
	if d.Rate <= 0 || p.Rate <= 0 {
		return 0, 0, false
	}
	room := 1.0
	if d.KVShare != nil {
		room = max(0, 1-*d.KVShare)
	}
	local = float64(d.Waiting+d.Uncached) / (d.Rate * room) // infinite without room
	return local, float64(p.Waiting)/p.Rate + hop(s), true
}

// hop estimates the seconds in which the prefill worker computes the prompt and its KV moves.
func hop(s PrefillState) float64 {
	compute, transfer := float64(s.Prefill.Uncached)/s.Prefill.Rate, 0.0
	if s.TransferRate > 0 {
		transfer = float64(s.Decode.Uncached) / s.TransferRate
	}
	if s.TransferOverlaps {
		return max(compute, transfer)
	}
	return compute + transfer
}

// delays estimates by how much the prompt delays its own first token and other requests,
// in each of the two places: the sum of the seconds that each request loses, relative to
// each other. known is false while the speed of one of the places is unknown.
//
// The prompt waits for the prompts before it and for its own computing. About as many will
// come behind it as wait now, and wait for it, too.
//
// What is computed at the decode worker also holds up the answers that it decodes. They
// keep their blocks for longer, so that later requests find less room. One more second of
// work for a server that is busy for a share of the time delays all that come, itself
// included, by 1/(1-share)² seconds: the derivative of the mean number of requests there,
// share/(1-share) if they come at random. Here the share is that of the KV pool, with this
// prompt. A prompt that is computed elsewhere has its own blocks kept free meanwhile: that
// part of the price is paid for the whole time.
//
// Both results are multiplied by (1-share)², so that a full worker gives no infinity.
func delays(s PrefillState) (local, remote float64, known bool) {
	d, p := s.Decode, s.Prefill
	if d.Rate <= 0 || p.Rate <= 0 {
		return 0, 0, false
	}
	own, used, kept := 0.0, 0.0, 0.0
	if d.KVTokens > 0 {
		own = min(1, float64(d.Uncached)/float64(d.KVTokens))
	}
	if d.KVShare != nil {
		used = *d.KVShare
	}
	if s.TransferOverlaps {
		kept = own
	}
	room := max(0, 1-used-own)
	room *= room
	local = room*float64(d.Waiting)/d.Rate + float64(d.Uncached)/d.Rate*(1+d.Prompts)
	behind := float64(p.Uncached) / p.Rate * p.Prompts
	return local, (float64(p.Waiting)/p.Rate + hop(s) + behind) * (room + kept*(1-room)), true
}
