package router

// PrefillLimits are the thresholds of the disaggregation decision. They change at run
// time.
type PrefillLimits struct {
	// MaxLocalTokens is the largest number of uncached prompt tokens that a decode
	// worker prefills itself.
	MaxLocalTokens int
	// MaxQueueDepth is the queue length from which remote prefill takes too long.
	MaxQueueDepth int
}

// PrefillState is the input of the disaggregation decision.
type PrefillState struct {
	PromptTokens, CachedTokens int
	PrefillWorkers             int // ready now
	QueueDepth                 int
	// Force overrides the thresholds: "remote", "local" or "".
	Force string
}

// WhyQueueFull is the reason for a local prefill when the prefill queue is too long.
const WhyQueueFull = "queue full"

// DecidePrefill decides whether a prompt is prefilled remotely, and gives a short reason.
// It is Dynamo's conditional disaggregation: remote when the uncached part is long and
// the queue is short.
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
