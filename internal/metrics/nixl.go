package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// NIXLFigures are the totals of one NIXL agent since it started.
type NIXLFigures struct {
	TxBytes, RxBytes       uint64 // written to and read from peers by this agent
	InBytes, OutBytes      uint64 // written and read by peers in this agent's memory
	TxRequests, RxRequests uint64
	XferTime               time.Duration     // summed over transfers
	Errors                 map[string]uint64 // failed transfers by status
	Refused                map[string]uint64 // accesses of peers by reason
	Sent, Received         uint64            // notifications
	OpenTickets            int
	RegisteredBytes        uint64
	Peers                  map[string]int // by transport
	Fallbacks              map[NIXLFallback]uint64
	Transports             map[string]NIXLTraffic
}

// NIXLTraffic are the totals of one agent over one transport.
type NIXLTraffic struct {
	TxBytes, RxBytes   uint64
	XferTime, PostTime NIXLTimes
}

// NIXLTimes is a histogram of durations.
type NIXLTimes struct {
	Counts []uint64 // one per bound of NewNIXL, and one for longer durations
	Sum    time.Duration
}

// NIXLFallback names a transport that should have reached a peer, the one used
// instead, and why.
type NIXLFallback struct{ Wanted, Used, Reason string }

// NIXL holds the metrics of one NIXL agent.
type NIXL struct {
	registry *Registry
	agent    string
	last     NIXLFigures

	bytes, requests, xferTime, errors, refused, notifications *CounterVec
	fallbacks                                                 *CounterVec
	txBytes, rxBytes                                          *CounterVec
	duration, postTime                                        *HistogramSnapshotVec
	peers, tickets, registered                                *GaugeVec
}

// NewNIXL returns the metrics of the agent of that name in r. bounds are the bounds of
// the agent's histograms.
func NewNIXL(r *Registry, agent string, bounds []time.Duration) *NIXL {
	seconds := make([]float64, len(bounds))
	for i, d := range bounds {
		seconds[i] = d.Seconds()
	}
	return &NIXL{
		registry: r, agent: agent,
		bytes:         r.counter(NIXLBytes, "Total number of bytes moved: tx and rx by this agent, in and out by its peers", LabelAgent, LabelDirection),
		requests:      r.counter(NIXLRequests, "Total number of transfers posted", LabelAgent, LabelDirection),
		xferTime:      r.counter(NIXLXferTime, "Time spent in completed transfers, in seconds", LabelAgent),
		txBytes:       r.counter(NIXLTxBytes, "Total number of bytes written to peers", LabelAgent, LabelTransport),
		rxBytes:       r.counter(NIXLRxBytes, "Total number of bytes read from peers", LabelAgent, LabelTransport),
		duration:      r.histogramSnapshot(NIXLXferDuration, "Time of completed transfers, in seconds", seconds, LabelAgent, LabelTransport),
		postTime:      r.histogramSnapshot(NIXLPostDuration, "Time spent posting transfers, in seconds", seconds, LabelAgent, LabelTransport),
		errors:        r.counter(NIXLErrors, "Total number of failed transfers", LabelAgent, LabelStatus),
		refused:       r.counter(NIXLRefused, "Total number of accesses by peers that were refused", LabelAgent, LabelReason),
		notifications: r.counter(NIXLNotifications, "Total number of notifications", LabelAgent, LabelDirection),
		fallbacks:     r.counter(NIXLFallbacks, "Total number of times a peer was loaded over a transport (transport) that ranks below one that should have reached it (wanted)", LabelAgent, LabelWanted, LabelTransport, LabelReason),
		peers:         r.gauge(NIXLPeers, "Number of known peers by transport", LabelAgent, LabelTransport),
		tickets:       r.gauge(NIXLTickets, "Number of open tickets", LabelAgent),
		registered:    r.gauge(NIXLMemory, "Bytes of registered memory", LabelAgent),
	}
}

// Update sets the current totals. It is for one goroutine.
func (n *NIXL) Update(f NIXLFigures) {
	add := func(c *CounterVec, now, before uint64, labels ...string) {
		c.WithLabelValues(append([]string{n.agent}, labels...)...).Add(float64(now - before))
	}
	add(n.bytes, f.TxBytes, n.last.TxBytes, DirectionTx)
	add(n.bytes, f.RxBytes, n.last.RxBytes, DirectionRx)
	add(n.bytes, f.InBytes, n.last.InBytes, DirectionIn)
	add(n.bytes, f.OutBytes, n.last.OutBytes, DirectionOut)
	add(n.requests, f.TxRequests, n.last.TxRequests, DirectionTx)
	add(n.requests, f.RxRequests, n.last.RxRequests, DirectionRx)
	add(n.notifications, f.Sent, n.last.Sent, DirectionOut)
	add(n.notifications, f.Received, n.last.Received, DirectionIn)
	n.xferTime.WithLabelValues(n.agent).Add((f.XferTime - n.last.XferTime).Seconds())
	for status, v := range f.Errors {
		add(n.errors, v, n.last.Errors[status], status)
	}
	for reason, v := range f.Refused {
		add(n.refused, v, n.last.Refused[reason], reason)
	}
	for b, v := range f.Fallbacks {
		add(n.fallbacks, v, n.last.Fallbacks[b], b.Wanted, b.Used, b.Reason)
	}
	for transport, v := range f.Peers {
		n.peers.WithLabelValues(n.agent, transport).Set(float64(v))
	}
	for transport, t := range f.Transports {
		add(n.txBytes, t.TxBytes, n.last.Transports[transport].TxBytes, transport)
		add(n.rxBytes, t.RxBytes, n.last.Transports[transport].RxBytes, transport)
		n.duration.Set(t.XferTime.Counts, t.XferTime.Sum.Seconds(), n.agent, transport)
		n.postTime.Set(t.PostTime.Counts, t.PostTime.Sum.Seconds(), n.agent, transport)
	}
	n.tickets.WithLabelValues(n.agent).Set(float64(f.OpenTickets))
	n.registered.WithLabelValues(n.agent).Set(float64(f.RegisteredBytes))
	n.last = f
}

// Close removes the agent's series. It is safe to call twice.
func (n *NIXL) Close() { n.registry.forget(prometheus.Labels{LabelAgent: n.agent}) }
