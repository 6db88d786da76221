package metrics

import "github.com/prometheus/client_golang/prometheus"

// GPUFigures holds the figures of one GPU; those that its driver does not report are nil.
type GPUFigures struct {
	Index, UUID, Name       string
	MemoryBytes, MemoryUsed *int64
	Utilization, MemoryBusy *float64 // 0 to 1
	PowerWatts, PowerLimit  *float64
	Temperature, SMClockMHz *int // degrees Celsius, megahertz
	Throttled               []string
}

// GPUs holds the metrics of a node's GPUs.
type GPUs struct {
	memory, memoryUsed, utilization, memoryBusy, power, limit, temperature, clock, throttled *GaugeVec
}

// NewGPUs returns the metrics of GPUs in r.
func NewGPUs(r *Registry) *GPUs {
	gauge := func(name, help string, more ...string) *GaugeVec {
		return r.gauge(name, help, append([]string{LabelGPU, LabelUUID, LabelGPUName}, more...)...)
	}
	return &GPUs{
		memory:      gauge(GPUMemory, "Bytes of memory of a GPU"),
		memoryUsed:  gauge(GPUMemoryUsed, "Bytes of memory of a GPU in use by all processes and the driver"),
		utilization: gauge(GPUUtilization, "Share of time in which any kernel ran on a GPU"),
		memoryBusy:  gauge(GPUMemoryBusy, "Share of time in which memory of a GPU was read or written"),
		power:       gauge(GPUPower, "Watts that a GPU draws"),
		limit:       gauge(GPUPowerLimit, "Watts that a GPU may draw"),
		temperature: gauge(GPUTemperature, "Temperature of a GPU in degrees Celsius"),
		clock:       gauge(GPUClock, "Clock of the multiprocessors of a GPU in hertz"),
		throttled:   gauge(GPUThrottled, "1 while the clocks of a GPU are low for a reason other than idling", LabelReason),
	}
}

// Update sets the current figures of one GPU. Unknown figures have no series.
func (g *GPUs) Update(f GPUFigures) {
	labels := []string{f.Index, f.UUID, f.Name}
	setNumber(g.memory, f.MemoryBytes, 1, labels)
	setNumber(g.memoryUsed, f.MemoryUsed, 1, labels)
	setNumber(g.utilization, f.Utilization, 1, labels)
	setNumber(g.memoryBusy, f.MemoryBusy, 1, labels)
	setNumber(g.power, f.PowerWatts, 1, labels)
	setNumber(g.limit, f.PowerLimit, 1, labels)
	setNumber(g.temperature, f.Temperature, 1, labels)
	setNumber(g.clock, f.SMClockMHz, 1e6, labels)
	g.throttled.DeletePartialMatch(prometheus.Labels{LabelGPU: f.Index, LabelUUID: f.UUID, LabelGPUName: f.Name})
	for _, reason := range f.Throttled {
		g.throttled.WithLabelValues(append(labels, reason)...).Set(1)
	}
}

// setNumber sets a series in base units, or removes it if the figure is unknown.
func setNumber[T int | int64 | float64](v *GaugeVec, figure *T, unit float64, labels []string) {
	if figure == nil {
		v.DeleteLabelValues(labels...)
		return
	}
	v.WithLabelValues(labels...).Set(float64(*figure) * unit)
}
