package bench

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/engine/mock"
	"github.com/dynctl/dynctl/internal/model"
)

// fleetScale holds the sizes of the section fleet.
type fleetScale struct {
	workers  []int // of one node, the smallest number first
	settle   time.Duration
	idle     time.Duration // of measuring an idle node
	requests int           // of one token, one after the other
	turns    turns
}

// Column keys of this section.
const (
	keyReady      = "ready_s"
	keyIdleCores  = "idle_percent"
	keyHeap       = "kb_per_worker"
	keyGoroutines = "goroutines_per_worker"
	keyFiles      = "files_per_worker"
	keyScrape     = "scrape_ms"
	keySeries     = "series_per_worker"
)

const (
	fleetBlocks  = 1024
	fleetTimeout = 2 * time.Minute
)

// measureFleet measures what a node with many idle workers costs.
func measureFleet(ctx context.Context, s *session) (Section, error) {
	sc := s.scale.fleet
	sec := Section{
		Title: "Fleets",
		About: fmt.Sprintf("One process with embedded stores, a frontend and decode workers on a mock engine, each with\n"+
			"%d KV blocks. The policy is kv. What a worker costs is the difference to the smallest fleet.", fleetBlocks),
	}
	dir, err := model.Builtin(s.home)
	if err != nil {
		return sec, err
	}
	p, err := newPathBench(s, dir)
	if err != nil {
		return sec, err
	}
	defer p.close()
	var cases []Case
	round := 0
	for _, n := range sc.workers {
		cases = append(cases, Case{strconv.Itoa(n), func(ctx context.Context) (Sample, error) {
			round++
			return p.fleet(ctx, fmt.Sprintf("fleet-%d", round), n)
		}})
	}
	res, err := s.takeTurns(ctx, "fleet", sc.turns, cases)
	if err != nil {
		return sec, err
	}
	least := sc.workers[0]
	for _, n := range sc.workers[1:] {
		for _, key := range []string{keyHeap, keyGoroutines, keyFiles, keySeries} {
			res.difference(strconv.Itoa(n), key, key, strconv.Itoa(least))
			res.derive(strconv.Itoa(n), key, func(round map[string]Sample) (float64, bool) {
				v, ok := round[strconv.Itoa(n)][key]
				return v / float64(n-least), ok
			})
		}
	}
	for _, key := range []string{keyHeap, keyGoroutines, keyFiles, keySeries} { // the smallest has nothing to compare with
		res.drop(strconv.Itoa(least), key)
	}
	sec.Tables = append(sec.Tables, res.table("Workers", "", []Column{
		{keyReady, "ready s", "from declaring the workers until all of them are registered and a request is answered"},
		{keyIdleCores, "idle, % of a core", "processor time of the whole process, without requests"},
		{keyHeap, "KB a worker", "heap and stacks, the worker's KV pool included"},
		{keyGoroutines, "goroutines a worker", ""},
		{keyFiles, "files a worker", "open ones, sockets included"},
		{keySeries, "series a worker", "of /metrics"},
		{keyScrape, "scrape ms", "one /metrics"},
		{keyCPURequest, "CPU µs/request", "processor time of the whole process, the client's included, for a prompt of some 100 tokens and an answer of one"},
	}))
	return sec, nil
}

// fleet starts a node with n workers, measures it and stops it.
func (p *pathBench) fleet(ctx context.Context, name string, n int) (Sample, error) {
	sc := p.scale.fleet
	begin := time.Now()
	nd, err := p.node(ctx, nodeSpec{
		name: name, decode: n, blocks: fleetBlocks, blockSize: routerBlockSize,
		load: p.mockLoader(func() engine.Backend {
			return p.mockBackend(mock.Options{BlockSize: routerBlockSize}, new(atomic.Int64))
		}),
	})
	if err != nil {
		return nil, err
	}
	defer func() {
		nd.close()
		_ = os.RemoveAll(nd.spec.dir) // the last run's needs its room
	}()
	if err := nd.waitRegistered(ctx, n); err != nil {
		return nil, err
	}
	s := Sample{keyReady: time.Since(begin).Seconds()}
	if err := p.quiet(ctx, sc.settle); err != nil {
		return nil, err
	}
	used, known := cpuTime()
	if err := p.quiet(ctx, sc.idle); err != nil {
		return nil, err
	}
	if now, _ := cpuTime(); known {
		s[keyIdleCores] = 100 * (now - used).Seconds() / sc.idle.Seconds()
	}
	if err := nd.scrape(ctx, s); err != nil {
		return nil, err
	}
	s.footprint()
	used, known = cpuTime()
	for range sc.requests {
		q, err := p.ask.question(ctx, p.scale.path.prompt, 1)
		if err != nil {
			return nil, err
		}
		if _, err := p.client.to(nd.url).answer(ctx, q); err != nil {
			return nil, err
		}
	}
	if now, _ := cpuTime(); known {
		s[keyCPURequest] = float64((now - used).Microseconds()) / float64(sc.requests)
	}
	return s, nil
}

// quiet waits.
func (p *pathBench) quiet(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// waitRegistered waits until n decode workers are in discovery.
func (n *node) waitRegistered(ctx context.Context, workers int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, fleetTimeout, errNotUp)
	defer cancel()
	prefix := cluster.InstancePrefix(cluster.DefaultNamespace, cluster.RoleDecode.Component(), cluster.EndpointGenerate)
	for {
		kvs, _, err := n.store.List(ctx, prefix)
		if err == nil && len(kvs) >= workers {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d of %d workers: %w", len(kvs), workers, context.Cause(ctx))
		case <-time.After(nodePoll):
		}
	}
}

// scrape measures one reading of the node's metrics.
func (n *node) scrape(ctx context.Context, s Sample) error {
	begin := time.Now()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, n.statusURL+"/metrics", http.NoBody)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("read metrics: %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("read metrics: %w", err)
	}
	s[keyScrape] = float64(time.Since(begin).Microseconds()) / 1e3
	series := 0
	for line := range bytes.Lines(body) {
		if len(line) > 1 && line[0] != '#' {
			series++
		}
	}
	s[keySeries] = float64(series)
	return nil
}

// footprint adds what the process holds: memory in KB, goroutines and open files.
func (s Sample) footprint() {
	runtime.GC()
	runtime.GC() // the first one fills pools that the second one empties
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	s[keyHeap] = float64(m.HeapAlloc+m.StackInuse) / 1024
	s[keyGoroutines] = float64(runtime.NumGoroutine())
	if files, err := os.ReadDir("/proc/self/fd"); err == nil { // only Linux has it
		s[keyFiles] = float64(len(files))
	}
}
