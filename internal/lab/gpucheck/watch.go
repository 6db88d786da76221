package gpucheck

import (
	"strings"

	"github.com/dynctl/dynctl/internal/cuda/nvml"
)

// watch asks NVML for one GPU; without it nothing is known.
type watch struct {
	nvml   *nvml.NVML
	pci    string
	driver string // release
}

func newWatch(pci string, pretended bool) *watch {
	w := &watch{pci: strings.ToLower(pci)}
	if pretended {
		return w
	}
	n, err := nvml.Open()
	if err != nil {
		return w // results go without
	}
	w.nvml = n
	if report, err := n.Report(); err == nil {
		w.driver = report.Driver
	}
	return w
}

func (w *watch) state() (s State) {
	if w.nvml == nil {
		return s
	}
	report, err := w.nvml.Report()
	if err != nil {
		return s
	}
	for _, g := range report.GPUs {
		// NVML writes a domain of eight digits, the driver one of four.
		if strings.HasSuffix(strings.ToLower(g.Bus), w.pci) {
			s = State{ClockMHz: g.SMClockMHz, PowerWatts: g.PowerWatts, Temperature: g.Temperature, Throttled: g.Throttled}
		}
	}
	return s
}

func (w *watch) close() error {
	if w.nvml == nil {
		return nil
	}
	return w.nvml.Close()
}
