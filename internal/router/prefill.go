package router

// PrefillLimits are the run-time thresholds of the disaggregation decision.
type PrefillLimits struct {
	// MaxLocalTokens is the largest number of uncached prompt tokens that a decode
	// worker prefills itself.
	MaxLocalTokens int
	// MaxQueueDepth is the queue length at which remote prefill is no longer worth
	// waiting for.
	MaxQueueDepth int
}

// PrefillState is what the decision looks at.
type PrefillState struct {
	PromptTokens, CachedTokens int
	PrefillWorkers             int // ready now
	QueueDepth                 int
	// Force overrides the thresholds: "remote", "local" or "".
	Force string
}

// WhyQueueFull is the reason of a decision for a local prefill because others wait.
const WhyQueueFull = "queue full"

// DecidePrefill says whether a prompt is prefilled remotely, and a short reason
// for people: Dynamo's conditional disaggregation, remote when the uncached part
// is long and the queue is short.
func DecidePrefill(s PrefillState, l PrefillLimits) (remote bool, why string) {
	switch {
	case s.PrefillWorkers == 0:
		return false, "no prefill worker"
	case s.Force == "local":
		return false, "forced"
	case s.Force == "remote":
		return true, "forced"
	case s.PromptTokens-s.CachedTokens <= l.MaxLocalTokens:
		if s.CachedTokens > 0 && s.PromptTokens > l.MaxLocalTokens {
			return false, "cached"
		}
		return false, "short"
	case s.QueueDepth >= l.MaxQueueDepth:
		return false, WhyQueueFull
	}
	return true, "long prompt"
}
