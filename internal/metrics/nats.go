package metrics

// SetNATS shows the messages of the NATS server inside the process, which messages
// returns: those received and those delivered since its start. A server that was started
// again replaces the one before.
func SetNATS(r *Registry, messages func() (in, out int64)) {
	v := r.CounterFunc(NodeNATS, "Messages of the NATS server inside the process since its start, by direction", LabelDirection)
	v.Set(func() float64 { in, _ := messages(); return float64(in) }, "in")
	v.Set(func() float64 { _, out := messages(); return float64(out) }, "out")
}
