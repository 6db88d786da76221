package metrics

import "time"

// How one try to hand a sequence over ended, for [Worker.HandoverEnded].
const (
	// HandoverMoved: at the source, the sequence goes on at the target; at the target, its
	// frontend has followed it.
	HandoverMoved = "moved"
	// HandoverRefused: the target did not take the offer.
	HandoverRefused = "refused"
	// HandoverFailed: it was begun, and the sequence went on at the source.
	HandoverFailed = "failed"
	// HandoverOver: there was nothing left to move; the sequence ended or was preempted, or
	// the drain was taken back.
	HandoverOver = "over"
	// HandoverLost: the target had the sequence, and its frontend did not come for it.
	HandoverLost = "lost"
)

// handoverMetrics are about sequences that move between decode workers.
type handoverMetrics struct {
	started, ended, bytes *CounterVec
	took, pause           *HistogramVec
}

func newHandoverMetrics(r *Registry, with func(...string) []string) handoverMetrics {
	return handoverMetrics{
		started: r.Counter(ComponentHandoversStarted, "Total number of tries to hand a sequence over to another decode worker (out) or to take one over (in)", with(LabelDirection)...),
		ended:   r.Counter(ComponentHandovers, "Total number of tries to hand a sequence over, by how they ended and why", with(LabelDirection, LabelOutcome, LabelReason)...),
		bytes:   r.Counter(ComponentHandoverBytes, "Total number of KV bytes moved with sequences that were handed over", with(LabelDirection)...),
		took:    r.Histogram(ComponentHandoverTime, "Time from the offer of a sequence until it goes on at another worker, in seconds", waitBuckets(), with()...),
		pause:   r.Histogram(ComponentHandoverPause, "Time that a sequence stood still at its source in a try to hand it over, in seconds", transferBuckets(), with(LabelOutcome)...),
	}
}

// HandoverStarted counts a try to hand one sequence over to one worker. direction is
// [DirectionOut] at the source, [DirectionIn] at the target.
func (w *Worker) HandoverStarted(direction string) {
	w.handovers.started.WithLabelValues(w.with(direction)...).Inc()
}

// HandoverEnded counts the end of a try; reason is a word from a fixed set, empty for
// [HandoverMoved].
func (w *Worker) HandoverEnded(direction, outcome, reason string) {
	w.handovers.ended.WithLabelValues(w.with(direction, outcome, reason)...).Inc()
}

// HandedOver records a sequence whose KV has moved: at the source also how long that
// took, from the offer on.
func (w *Worker) HandedOver(direction string, bytes int64, took time.Duration) {
	w.handovers.bytes.WithLabelValues(w.with(direction)...).Add(float64(max(bytes, 0)))
	if direction == DirectionOut {
		w.handovers.took.WithLabelValues(w.with()...).Observe(took.Seconds())
	}
}

// HandoverPaused records how long a sequence stood still at its source, until the
// frontend was sent to the target or the sequence could go on.
func (w *Worker) HandoverPaused(outcome string, d time.Duration) {
	w.handovers.pause.WithLabelValues(w.with(outcome)...).Observe(d.Seconds())
}
