package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/metrics"
	"github.com/dynctl/dynctl/internal/statedir"
	"github.com/dynctl/dynctl/internal/store"
)

// fleetSpec is one point of the section: a fleet that is started, measured and killed.
type fleetSpec struct {
	workers, frontends, nodes, processes int
}

// fleet is a running one.
type fleet struct {
	*pathBench
	*node // its stores, seen from this process, which runs none of it
	spec  fleetSpec
	procs *fleetProcesses
	// idle is the processor time of all processes while nothing happens, per second.
	// Costs of work are what the processes use beyond it.
	idle float64
}

// errPointLate is returned when a point is not measured in time.
var errPointLate = errors.New("not measured in time")

// point measures one fleet. It returns what was measured, also with an error.
func (p *pathBench) point(ctx context.Context, name string, spec fleetSpec) (s Sample, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, p.scale.fleet.timeout, errPointLate)
	defer cancel()
	s = Sample{}
	dir := filepath.Join(p.tmp, name)
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }() // the next point needs its room
	procs, err := p.startFleet(ctx, dir, spec)
	if err != nil {
		return s, err
	}
	defer procs.kill()
	f := &fleet{pathBench: p, spec: spec, procs: procs, node: &node{
		spec: nodeSpec{decode: spec.workers, blocks: p.scale.fleet.blocks, blockSize: routerBlockSize, mock: true}, log: slog.New(slog.DiscardHandler),
		at: statedir.Endpoints{Etcd: procs.up.Stores.Etcd, NATS: procs.up.Stores.NATS}, secretFile: procs.up.Stores.SecretFile,
	}}
	defer f.node.close()
	cfg, err := nodeSpec{dir: dir}.config()
	if err != nil {
		return s, err
	}
	if err := f.reach(cfg.Etcd.EtcdClient); err != nil {
		return s, err
	}
	for _, part := range []struct {
		what    string
		measure func(context.Context, Sample) error
	}{
		{"start", f.start}, {"idle", f.idles}, {"metrics", f.scrapes}, {"requests", f.requests}, {"changes", f.changes}, {"orders", f.orders},
	} {
		if err := part.measure(ctx, s); err != nil {
			return s, fmt.Errorf("%s: %w", part.what, err)
		}
	}
	return s, nil
}

// start declares the workers and waits until all of them serve at all frontends.
func (f *fleet) start(ctx context.Context, s Sample) error {
	begin := time.Now()
	used, err := f.cpu(ctx)
	if err != nil {
		return err
	}
	if err := f.declare(ctx); err != nil {
		return err
	}
	prefix := cluster.InstancePrefix(cluster.DefaultNamespace, cluster.RoleDecode.Component(), cluster.EndpointGenerate)
	p, err := store.WatchPrefix(ctx, f.store, prefix, func(store.KV) (struct{}, error) { return struct{}{}, nil }, f.node.log)
	if err != nil {
		return err
	}
	defer p.Close()
	for len(p.Snapshot()) < f.spec.workers {
		select {
		case <-p.Changed():
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("%d of %d workers serve: %w", len(p.Snapshot()), f.spec.workers, context.Cause(ctx)), f.failure(context.WithoutCancel(ctx)))
		}
	}
	for _, url := range f.procs.up.Frontends {
		if err := f.knows(ctx, url); err != nil {
			return err
		}
	}
	s[keyReady] = time.Since(begin).Seconds()
	now, err := f.cpu(ctx)
	s[keyStartCPU] = now - used
	return err
}

// knows waits until a frontend can choose all workers.
func (f *fleet) knows(ctx context.Context, url string) error {
	for {
		body, err := f.get(ctx, url+"/health")
		n := bytes.Count(body, []byte(`"instance_id"`))
		if err == nil && n >= f.spec.workers {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("%s knows %d of %d workers: %w", url, n, f.spec.workers, context.Cause(ctx)), err)
		case <-time.After(10 * nodePoll):
		}
	}
}

// idles measures the fleet while nothing happens, and what it holds.
func (f *fleet) idles(ctx context.Context, s Sample) error {
	sc := f.scale.fleet
	if err := f.quiet(ctx, sc.settle); err != nil {
		return err
	}
	begin := time.Now()
	inBefore, outBefore, err := f.messages(ctx)
	if err != nil {
		return err
	}
	_, before, err := f.store.List(ctx, cluster.TopologyKey(cluster.DefaultNamespace))
	if err != nil {
		return err
	}
	used, err := f.cpu(ctx)
	if err != nil {
		return err
	}
	idle := time.Now()
	if err := f.quiet(ctx, sc.idle); err != nil {
		return err
	}
	now, err := f.cpu(ctx)
	if err != nil {
		return err
	}
	f.idle = (now - used) / time.Since(idle).Seconds()
	_, after, err := f.store.List(ctx, cluster.TopologyKey(cluster.DefaultNamespace))
	if err != nil {
		return err
	}
	in, out, err := f.messages(ctx)
	if err != nil {
		return err
	}
	took := time.Since(begin).Seconds()
	s[keyIdleCores] = 100 * f.idle
	s[keyWrites] = float64(after-before) / took
	s[keyPublished], s[keyDelivered] = (in-inBefore)/took, (out-outBefore)/took
	held, err := f.procs.ask(ctx, askFootprint)
	for key, v := range held {
		s[key] = v
	}
	return err
}

// messages reads how many messages the NATS server has received and delivered.
func (f *fleet) messages(ctx context.Context) (in, out float64, err error) {
	body, err := f.get(ctx, f.procs.up.Status[0]+"/metrics")
	if err != nil {
		return 0, 0, err
	}
	if in, err = seriesValue(body, metrics.NodeNATS, `direction="in"`); err != nil {
		return 0, 0, err
	}
	out, err = seriesValue(body, metrics.NodeNATS, `direction="out"`)
	return in, out, err
}

// scrapes reads the metrics of all nodes, one after the other.
func (f *fleet) scrapes(ctx context.Context, s Sample) error {
	const rounds = 3
	var took []time.Duration
	series := 0
	err := f.costs(ctx, s, keyScrapeCPU, 1e3, rounds, func() error {
		begin := time.Now()
		series = 0
		for _, url := range f.procs.up.Status {
			body, err := f.get(ctx, url+"/metrics")
			if err != nil {
				return err
			}
			for line := range bytes.Lines(body) {
				if len(line) > 1 && line[0] != '#' {
					series++
				}
			}
		}
		took = append(took, time.Since(begin))
		return nil
	})
	if err != nil {
		return err
	}
	s[keySeries], s[keyScrape] = float64(series), ms(middle(took))
	return nil
}

// get reads a page of a node.
func (f *fleet) get(ctx context.Context, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := f.client.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", url, err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("read %s: %w %d", url, errStatus, resp.StatusCode)
	}
	return body, nil
}

// errStatus is returned for a page that is not there.
var errStatus = errors.New("status")

// cpu returns the processor time of all processes, in seconds.
func (f *fleet) cpu(ctx context.Context) (float64, error) {
	s, err := f.procs.ask(ctx, askCPU)
	return s[keyCPUSeconds], err
}

// costs runs work several times and adds the processor time of one to s, times scale: in
// seconds, less what the fleet uses when it is idle. It adds nothing if the work does not
// stand out from that.
func (f *fleet) costs(ctx context.Context, s Sample, key string, scale float64, times int, work func() error) error {
	used, err := f.cpu(ctx)
	if err != nil {
		return err
	}
	begin := time.Now()
	for range times {
		if err := work(); err != nil {
			return err
		}
	}
	took := time.Since(begin).Seconds()
	now, err := f.cpu(ctx)
	if cost := now - used - f.idle*took; cost > 0 {
		s[key] = scale * cost / float64(times)
	}
	return err
}

// seriesValue returns the value of one series in the text format of Prometheus.
func seriesValue(page []byte, name, label string) (float64, error) {
	for line := range bytes.Lines(page) {
		var v float64
		if text := string(line); strings.HasPrefix(text, name+"{") && strings.Contains(text, label) {
			_, err := fmt.Sscan(text[strings.LastIndexByte(strings.TrimSpace(text), ' '):], &v)
			return v, err
		}
	}
	return 0, fmt.Errorf("%w: %s{%s}", errNoSeries, name, label)
}

// errNoSeries is returned when a node does not show a metric.
var errNoSeries = errors.New("no such series")

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// middle returns the median.
func middle(d []time.Duration) time.Duration {
	if len(d) == 0 {
		return 0
	}
	d = slices.Clone(d)
	slices.Sort(d)
	return d[len(d)/2]
}

// quiet waits.
func (s *session) quiet(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
