package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// NIXL holds the metrics of one NIXL agent.
type NIXL struct {
	Registered Gauge // bytes of registered memory
	Tickets    Gauge // open tickets

	registry *Registry
	agent    string

	txBytes, rxBytes, txRequests, rxRequests *CounterVec
	errors, notifications                    *CounterVec
	refusals, fallbacks                      *CounterVec
	peers                                    *GaugeVec
	xferTime, postTime                       *HistogramVec
}

// NewNIXL returns the metrics of the agent of that name in r.
func NewNIXL(r *Registry, agent string) *NIXL {
	return &NIXL{
		registry: r, agent: agent,
		Registered: r.Gauge(NIXLMemory, "Bytes of registered memory", LabelAgent).WithLabelValues(agent),
		Tickets:    r.Gauge(NIXLTickets, "Number of open tickets", LabelAgent).WithLabelValues(agent),

		txBytes:       r.Counter(NIXLTxBytes, "Total number of bytes written to peers", LabelAgent, LabelTransport),
		rxBytes:       r.Counter(NIXLRxBytes, "Total number of bytes read from peers", LabelAgent, LabelTransport),
		txRequests:    r.Counter(NIXLTxRequests, "Total number of write transfers", LabelAgent, LabelTransport),
		rxRequests:    r.Counter(NIXLRxRequests, "Total number of read transfers", LabelAgent, LabelTransport),
		errors:        r.Counter(NIXLErrors, "Total number of failed transfers", LabelAgent, LabelStatus),
		notifications: r.Counter(NIXLNotifications, "Total number of notifications", LabelAgent, LabelDirection),
		refusals:      r.Counter(NIXLTicketRefusals, "Total number of accesses refused for want of a valid ticket", LabelAgent, LabelReason),
		fallbacks:     r.Counter(NIXLTransportChanges, "Total number of peers reached by a worse transport than possible", LabelAgent, LabelTransport, LabelReason),
		peers:         r.Gauge(NIXLPeers, "Number of known peers by transport", LabelAgent, LabelTransport),
		xferTime:      r.Histogram(NIXLXferTime, "Time from posting a transfer to its completion, in seconds", transferBuckets(), LabelAgent, LabelTransport),
		postTime:      r.Histogram(NIXLPostTime, "Time to post a transfer, in seconds", transferBuckets(), LabelAgent, LabelTransport),
	}
}

// Wrote records a completed write transfer: NIXL's tx.
func (n *NIXL) Wrote(transport string, bytes int64, post, xfer time.Duration) {
	n.txBytes.WithLabelValues(n.agent, transport).Add(float64(max(bytes, 0)))
	n.txRequests.WithLabelValues(n.agent, transport).Inc()
	n.took(transport, post, xfer)
}

// Read records a completed read transfer: NIXL's rx.
func (n *NIXL) Read(transport string, bytes int64, post, xfer time.Duration) {
	n.rxBytes.WithLabelValues(n.agent, transport).Add(float64(max(bytes, 0)))
	n.rxRequests.WithLabelValues(n.agent, transport).Inc()
	n.took(transport, post, xfer)
}

func (n *NIXL) took(transport string, post, xfer time.Duration) {
	n.postTime.WithLabelValues(n.agent, transport).Observe(post.Seconds())
	n.xferTime.WithLabelValues(n.agent, transport).Observe(xfer.Seconds())
}

// Failed counts a transfer that ended with an error status, by its name.
func (n *NIXL) Failed(status string) { n.errors.WithLabelValues(n.agent, status).Inc() }

// Notified counts a notification, in or out.
func (n *NIXL) Notified(direction string) { n.notifications.WithLabelValues(n.agent, direction).Inc() }

// Refused counts an access by a peer that no ticket allowed.
func (n *NIXL) Refused(reason string) { n.refusals.WithLabelValues(n.agent, reason).Inc() }

// FellBack counts a peer that is reached by this transport although a better one
// should have worked.
func (n *NIXL) FellBack(transport, reason string) {
	n.fallbacks.WithLabelValues(n.agent, transport, reason).Inc()
}

// Peers sets how many peers are reached by a transport.
func (n *NIXL) Peers(transport string, count int) {
	n.peers.WithLabelValues(n.agent, transport).Set(float64(count))
}

// Close removes the agent's series. It is safe to call twice.
func (n *NIXL) Close() { n.registry.forget(prometheus.Labels{LabelAgent: n.agent}) }
