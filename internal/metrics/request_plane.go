package metrics

// RequestPlane holds the metrics of calls to workers, as the caller sees them.
type RequestPlane struct {
	Queue     Observer // seconds from the decision to call to sending
	Send      Observer // seconds until the request was sent
	FirstItem Observer // seconds from sending to the first item of the answer
	Inflight  Gauge
}

// NewRequestPlane returns the request plane's metrics in r.
func NewRequestPlane(r *Registry) *RequestPlane {
	hist := func(name, help string, bounds []float64) Observer {
		return r.Histogram(name, help, bounds).WithLabelValues()
	}
	return &RequestPlane{
		Queue:     hist(RequestPlaneQueue, "Time from the call to the start of sending, in seconds", requestPlaneBuckets()),
		Send:      hist(RequestPlaneSend, "Time to send a request, in seconds", requestPlaneBuckets()),
		FirstItem: hist(RequestPlaneTTFT, "Time from sending to the first item of the response, in seconds", roundtripBuckets()),
		Inflight:  r.Gauge(RequestPlaneInflight, "Number of calls in flight").WithLabelValues(),
	}
}
