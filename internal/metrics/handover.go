package metrics

import "time"

// The outcomes of an attempt to hand a sequence over, for [Worker.HandoverEnded].
const (
	// HandoverMoved: at the source, the target continues the sequence. At the target, the
	// frontend has followed the sequence.
	HandoverMoved = "moved"
	// HandoverRefused: the target did not take the offer.
	HandoverRefused = "refused"
	// HandoverFailed: the hand-over was started, and the sequence continued at the
	// source.
	HandoverFailed = "failed"
	// HandoverOver: there was nothing left to move. The sequence ended or was preempted,
	// or the drain was cancelled.
	HandoverOver = "over"
	// HandoverLost: the target had the sequence, but its frontend did not ask for it.
	HandoverLost = "lost"
)

// handoverMetrics covers sequences that move between decode workers.
type handoverMetrics struct {
	started, ended, bytes *CounterVec
	took, pause           *HistogramVec
}

func newHandoverMetrics(r *Registry, with func(...string) []string) handoverMetrics {
	return handoverMetrics{
		started: r.counter(ComponentHandoversStarted, "Total number of tries to hand a sequence over to another decode worker (out) or to take one over (in)", with(LabelDirection)...),
		ended:   r.counter(ComponentHandovers, "Total number of tries to hand a sequence over, by how they ended and why", with(LabelDirection, LabelOutcome, LabelReason)...),
		bytes:   r.counter(ComponentHandoverBytes, "Total number of KV bytes moved with sequences that were handed over", with(LabelDirection)...),
		took:    r.histogram(ComponentHandoverTime, "Time from the offer of a sequence until it goes on at another worker, in seconds", waitBuckets(), with()...),
		pause:   r.histogram(ComponentHandoverPause, "Time that a sequence stood still at its source in a try to hand it over, in seconds", transferBuckets(), with(LabelOutcome)...),
	}
}

// HandoverStarted counts an attempt to hand one sequence over to one worker. direction is
// [DirectionOut] at the source, [DirectionIn] at the target.
func (w *Worker) HandoverStarted(direction string) {
	w.handovers.started.WithLabelValues(w.with(direction)...).Inc()
}

// HandoverEnded counts the end of an attempt. reason is a word from a fixed set, empty
// for [HandoverMoved].
func (w *Worker) HandoverEnded(direction, outcome, reason string) {
	w.handovers.ended.WithLabelValues(w.with(direction, outcome, reason)...).Inc()
}

// HandedOver records a sequence whose KV was moved. At the source it also records took,
// the time since the offer.
func (w *Worker) HandedOver(direction string, bytes int64, took time.Duration) {
	w.handovers.bytes.WithLabelValues(w.with(direction)...).Add(float64(max(bytes, 0)))
	if direction == DirectionOut {
		w.handovers.took.WithLabelValues(w.with()...).Observe(took.Seconds())
	}
}

// HandoverPaused records how long a sequence was paused at its source, until the frontend
// was sent to the target or the sequence continued.
func (w *Worker) HandoverPaused(outcome string, d time.Duration) {
	w.handovers.pause.WithLabelValues(w.with(outcome)...).Observe(d.Seconds())
}
