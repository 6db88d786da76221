package metrics

// ReplicaSync holds the metrics of what frontends tell each other of their requests in
// flight.
type ReplicaSync struct {
	// Gaps counts changes that did not come, Snapshots the answers with all flights.
	Gaps, Snapshots Counter
	// Lost counts own changes that could not be published, Malformed and Excess what was
	// ignored of other frontends.
	Lost, Malformed, Excess Counter
}

// NewReplicaSync returns the metrics in r. flights computes the flights of other frontends
// when metrics are read; it must not block.
func NewReplicaSync(r *Registry, flights func() float64) *ReplicaSync {
	r.gaugeFunc(FrontendReplicaFlights, "Requests in flight of other frontends that this one counts").Set(flights)
	dropped := r.counter(FrontendReplicaDropped, "Total number of flight changes that were dropped: lost before they were published, malformed, or beyond the flights that are counted of one frontend", LabelReason)
	return &ReplicaSync{
		Gaps:      r.counter(FrontendReplicaGaps, "Total number of flight changes of other frontends that did not arrive").WithLabelValues(),
		Snapshots: r.counter(FrontendReplicaSnapshots, "Total number of answers with all flights of another frontend").WithLabelValues(),
		Lost:      dropped.WithLabelValues("lost"), Malformed: dropped.WithLabelValues("malformed"), Excess: dropped.WithLabelValues("excess"),
	}
}
