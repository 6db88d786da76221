package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/cuda/nvml"
	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/metrics"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/undo"
)

// GPUSource lists a node's GPUs and reads their figures.
type GPUSource interface {
	Report() (cluster.GPUReport, error)
	Close() error
}

func openNVML() (GPUSource, error) {
	n, err := nvml.Open()
	if err != nil {
		return nil, err // not an interface around a nil pointer
	}
	return n, nil
}

const (
	// gpuPatience bounds how long the start of a node waits for the first report. A
	// driver with a broken GPU may never answer.
	gpuPatience = 5 * time.Second
	gpuEvery    = time.Second // how often figures are read
)

// gpus reads the figures of the node's GPUs in its own goroutine. If the driver hangs,
// only that goroutine waits.
type gpus struct {
	open   func() (GPUSource, error)
	heard  func(cluster.GPUReport) // called with each report, if there are GPUs
	log    *slog.Logger
	every  time.Duration
	first  chan struct{} // closed after the first report
	done   chan struct{} // closed when the goroutine has ended
	cancel context.CancelFunc

	mu   sync.Mutex
	last cluster.GPUReport
}

func newGPUs(open func() (GPUSource, error), log *slog.Logger) *gpus {
	if open == nil {
		open = openNVML
	}
	return &gpus{open: open, log: log, every: gpuEvery, first: make(chan struct{}), done: make(chan struct{})}
}

// start begins reading, and waits for the first report for at most patience.
func (g *gpus) start(ctx context.Context, patience time.Duration) {
	ctx, g.cancel = context.WithCancel(context.WithoutCancel(ctx))
	g.set(cluster.GPUReport{GPUs: []cluster.GPU{}, Missing: "NVIDIA's driver has not answered for " + patience.String() + ": nvidia-smi says more"})
	go g.run(ctx)
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case <-g.first:
	case <-late.C:
		g.log.Warn("no figures of GPUs", "reason", g.report().Missing)
	}
}

// stop ends the reading. It abandons the goroutine if the driver hangs.
func (g *gpus) stop(ctx context.Context) error {
	g.cancel()
	select {
	case <-g.done:
		return nil
	case <-ctx.Done():
		return errors.New("NVIDIA's driver does not answer; stopped waiting for it")
	}
}

func (g *gpus) report() cluster.GPUReport {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.last
}

func (g *gpus) set(r cluster.GPUReport) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.last = r
}

func (g *gpus) run(ctx context.Context) {
	defer close(g.done)
	source, err := g.open()
	if err != nil {
		g.set(cluster.GPUReport{GPUs: []cluster.GPU{}, Missing: err.Error()})
		close(g.first)
		return
	}
	defer func() {
		if err := source.Close(); err != nil {
			g.log.Warn("GPUs not closed", "error", err)
		}
	}()
	known := readGPUs(source, cluster.GPUReport{GPUs: []cluster.GPU{}})
	g.set(known)
	close(g.first)
	tick := time.NewTicker(g.every)
	defer tick.Stop()
	for r := known; len(known.GPUs) > 0; r = readGPUs(source, known) {
		g.set(r)
		g.heard(r)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// readGPUs reads a report. GPUs that can no longer be read keep their known names.
func readGPUs(source GPUSource, known cluster.GPUReport) cluster.GPUReport {
	r, err := source.Report()
	if err != nil {
		r = known.Inventory()
		r.At = time.Now()
		for i := range r.GPUs {
			r.GPUs[i].Failed = err.Error()
		}
		if len(r.GPUs) == 0 {
			r.Missing = err.Error()
		}
	}
	was := known.Inventory()
	for i := range r.GPUs {
		if why := r.GPUs[i].Failed; why != "" && i < len(was.GPUs) {
			r.GPUs[i] = was.GPUs[i]
			r.GPUs[i].Failed = why
		}
	}
	return r
}

// startGPUs looks for GPUs. If there are any, it publishes their figures as metrics and
// as events, and answers queries.
func (a *Agent) startGPUs(ctx context.Context, back *undo.Stack) error {
	a.gpus = newGPUs(a.opts.GPUs, a.log)
	m := metrics.NewGPUs(a.metrics)
	subject := events.Subject(a.cfg.Namespace, cluster.ComponentAgent, cluster.TopicNodeStats)
	a.gpus.heard = func(r cluster.GPUReport) {
		for i := range r.GPUs {
			m.Update(gpuFigures(&r.GPUs[i]))
		}
		_ = a.stores.bus.Publish(context.WithoutCancel(ctx), subject, cluster.NodeStats{NodeID: a.nodeID, GPU: r}) // lost events are counted by the bus
	}
	a.gpus.start(ctx, gpuPatience)
	back.Push("stop reading the figures of GPUs", a.gpus.stop)
	r := a.gpus.report()
	if len(r.GPUs) == 0 {
		a.log.Debug("no GPUs", "reason", r.Missing)
		return nil
	}
	a.log.Info("GPUs found", "gpus", len(r.GPUs), "driver", r.Driver, "devices", a.cfg.GPU.Devices)
	if _, err := a.drt.Serve(ctx, cluster.ComponentAgent, cluster.EndpointNodeStats, a.sendStats); err != nil {
		return fmt.Errorf("serve the figures of GPUs: %w", err)
	}
	return nil
}

// sendStats answers a query with the newest figures.
func (a *Agent) sendStats(_ context.Context, _ *requestplane.Request, send func(any) error) error {
	return send(cluster.NodeStats{NodeID: a.nodeID, GPU: a.gpus.report()})
}

func gpuFigures(g *cluster.GPU) metrics.GPUFigures {
	return metrics.GPUFigures{
		Index: strconv.Itoa(g.Index), UUID: g.UUID, Name: g.Name, MemoryBytes: g.MemoryBytes, MemoryUsed: g.MemoryUsed,
		Utilization: g.Utilization, MemoryBusy: g.MemoryBusy, PowerWatts: g.PowerWatts, PowerLimit: g.PowerLimit,
		Temperature: g.Temperature, SMClockMHz: g.SMClockMHz, Throttled: g.Throttled,
	}
}
