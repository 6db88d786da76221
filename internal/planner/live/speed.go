package live

import (
	"fmt"
	"slices"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/planner"
	"github.com/dynctl/dynctl/internal/profile"
)

const (
	// rememberedRows is how many windows of workers the costs of steps are found from.
	rememberedRows = 512
	// neededWindows is how many windows with work make costs known.
	neededWindows = 5
)

// Speed is how fast one worker is, from the counters of all of them: differences of totals are sums of
// steps, from which [profile.Fit] finds what a step costs. It implements planner.Performance. The first token is
// that of the worker: parsing, routing and the way to the client are not in it.
type Speed struct {
	profile.Performance // of the profile below or, while that is not known, of the measured one

	measured *profile.Taught  // nil: nobody has measured the workers
	rows     []profile.Sample // a ring, once it is full
	next     int
	windows  int
	profile  profile.Profile
	unseen   []string
	// transfers of KV and their seconds, in which a window counts a tenth less than the one after it
	transfers, transferred float64
}

// evaluator is planner.Queueing with what the workers show: the tokens of their steps, and how long their
// transfers of KV take.
type evaluator struct {
	speed  *Speed
	target planner.Target
	// leastDelay says that prompts are computed where they delay least.
	leastDelay bool
}

// Evaluate implements planner.Evaluator.
func (e *evaluator) Evaluate(plan planner.Plan, f planner.Forecast) (planner.Outcome, error) {
	return e.queueing().Evaluate(plan, f)
}

func (e *evaluator) queueing() planner.Queueing {
	return planner.Queueing{Performance: e.speed, Target: e.target, LeastDelay: e.leastDelay, Chunk: e.speed.Prefill.Limits.MaxBatchTokens, MaxSeqs: e.speed.Decode.Limits.MaxSeqs, Handover: e.speed.Handover()}
}

// Handover returns how long a transfer of KV takes, on average; 0 before the first.
func (s *Speed) Handover() time.Duration {
	if s.transfers == 0 {
		return 0
	}
	return profile.Seconds(s.transferred / s.transfers)
}

// moved takes in the transfers of one window.
func (s *Speed) moved(transfers float64, took time.Duration) {
	if transfers > 0 {
		s.transfers, s.transferred = 0.9*s.transfers+transfers, 0.9*s.transferred+took.Seconds()
	}
}

// NewSpeed returns a speed that knows nothing yet.
func NewSpeed() *Speed {
	s := &Speed{profile: profile.Profile{Version: profile.Version, Devices: 1}}
	s.Performance = s.profile.Performance()
	return s
}

// measure takes in what somebody has measured, nil for nothing.
func (s *Speed) measure(t *profile.Taught) { s.measured = t }

// choose takes what is known now: what workers do says more than what they once did.
func (s *Speed) choose() {
	s.Performance = s.profile.Performance()
	if s.taught() {
		s.Performance = s.measured.Profile.Performance()
	}
}

// taught reports whether the speed is the measured one.
func (s *Speed) taught() bool { return s.measured != nil && s.unlearned() != "" }

// limits takes in the limits of a worker.
func (s *Speed) limits(st cluster.WorkerStats) {
	if st.KVTotal > 0 && st.BlockSize > 0 {
		s.profile.Limits.KVBlocks, s.profile.Limits.BlockSize = st.KVTotal, st.BlockSize
	}
	if st.MaxBatchTokens > 0 {
		s.profile.Limits.MaxBatchTokens = st.MaxBatchTokens
	}
	if st.MaxSeqs > 0 {
		s.profile.Limits.MaxSeqs = st.MaxSeqs
	}
}

// learn takes in what workers did in one window.
func (s *Speed) learn(samples []profile.Sample) {
	if len(samples) == 0 {
		return
	}
	s.windows = min(s.windows+1, neededWindows)
	for _, row := range samples {
		if len(s.rows) < rememberedRows {
			s.rows = append(s.rows, row)
			continue
		}
		s.rows[s.next] = row
		s.next = (s.next + 1) % rememberedRows
	}
	costs, quality, err := profile.Fit(s.rows)
	if err != nil {
		return // no row is one of these: they all have a duration
	}
	s.profile.Step, s.profile.Fitted, s.unseen = costs, &quality, quality.Unseen
}

// observed returns the windows that the costs were found from; nil before the first.
func (s *Speed) observed() *profile.Observed {
	o, err := profile.Observe(s.rows)
	if err != nil {
		return nil // there are none
	}
	return &o
}

// Missing says what is not known yet; empty once the speed is.
func (s *Speed) Missing() string {
	if s.measured != nil {
		return ""
	}
	return s.unlearned()
}

// unlearned says what the workers have not shown yet; empty once they have shown how fast they are.
func (s *Speed) unlearned() string {
	switch {
	case s.windows < neededWindows:
		return fmt.Sprintf("The speed of a worker is not known yet: %d of %d windows with work were seen", s.windows, neededWindows)
	case slices.Contains(s.unseen, "token_s"):
		return "No worker has computed a prompt since this node leads"
	case slices.Contains(s.unseen, "decode_s"):
		return "No worker has decoded since this node leads"
	case s.profile.Limits.KVTokens() == 0 || s.profile.Limits.MaxBatchTokens == 0:
		return "No worker has told its limits"
	case !(s.profile.ITL(1, 1) > 0):
		return "Steps of workers take no time that can be measured"
	}
	return ""
}
