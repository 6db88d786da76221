package metrics

import "time"

// Node holds the metrics of a node itself.
type Node struct {
	// LogDropped counts lines of logs that a full disk did not take.
	LogDropped Counter

	alarms, certificates *GaugeVec
}

// NewNode returns the metrics of a node in r.
func NewNode(r *Registry) *Node {
	return &Node{
		LogDropped: r.counter(NodeLogDropped, "Total number of log lines that were dropped because the disk was full").WithLabelValues(),
		alarms:     r.gauge(NodeAlarm, "1 while the node needs attention, by reason", LabelReason),

		certificates: r.gauge(NodeCertificate, "When a certificate from a file ends, in seconds since 1970, by section of the settings", LabelSection),
	}
}

// Alarm shows whether the node needs attention for a reason, a word from a fixed set.
func (n *Node) Alarm(reason string, on bool) {
	value := 0.0
	if on {
		value = 1
	}
	n.alarms.WithLabelValues(reason).Set(value)
}

// CertificateEnds shows when the certificate of a section of the settings ends.
func (n *Node) CertificateEnds(section string, ends time.Time) {
	n.certificates.WithLabelValues(section).Set(float64(ends.Unix()))
}

// SetNATS shows the messages of the NATS server inside the process, which messages
// returns: those received and those delivered since its start. A server that was started
// again replaces the one before.
func SetNATS(r *Registry, messages func() (in, out int64)) {
	v := r.counterFunc(NodeNATS, "Messages of the NATS server inside the process since its start, by direction", LabelDirection)
	v.Set(func() float64 { in, _ := messages(); return float64(in) }, "in")
	v.Set(func() float64 { _, out := messages(); return float64(out) }, "out")
}
