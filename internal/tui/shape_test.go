package tui

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/lipgloss"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/tui/draw"
)

// checkShape fails if a line is wider than the screen or there are too many.
// Lipgloss measures, so that the check does not rely on the code it checks.
func checkShape(t *testing.T, view string, w, h int) {
	t.Helper()
	lines := strings.Split(view, "\n")
	if len(lines) > max(h, 1) {
		t.Fatalf("%d lines on a screen of %d", len(lines), h)
	}
	for i, l := range lines {
		if n := lipgloss.Width(l); n > w {
			t.Fatalf("line %d takes %d of %d cells: %q", i, n, w, l)
		}
	}
}

// randomText draws from what names could hold at worst.
func randomText(r *rand.Rand) string {
	parts := []string{"worker", "-", "7", "模型", "é", "e\u0301", "👩‍👩‍👧", "🇩🇪", "\x1b[31m", "\n", "\t", "\u200b", "\u202e", "\xff", "\xe6\xa8", "ﷺ", "…", "█", " ", strings.Repeat("x", 90), "\u0301", "ｗ", "\r"}
	var b strings.Builder
	for range r.IntN(5) {
		b.WriteString(parts[r.IntN(len(parts))])
	}
	return b.String()
}

func randomFloat(r *rand.Rand) *float64 {
	values := []float64{0, 1, -1, 0.5, 99.95, 999.5, 1e5, 1e9, 1e300, math.NaN(), math.Inf(1), math.Inf(-1), math.MaxFloat64, math.SmallestNonzeroFloat64}
	if r.IntN(4) == 0 {
		return nil
	}
	return ptr(values[r.IntN(len(values))])
}

func randomInt(r *rand.Rand) int {
	values := []int{0, 1, 7, 64, 4096, -3, math.MaxInt, math.MinInt, 1 << 40}
	return values[r.IntN(len(values))]
}

func randomDuration(r *rand.Rand) time.Duration {
	values := []time.Duration{0, time.Millisecond, 8700 * time.Millisecond, time.Hour, -time.Second, math.MaxInt64, math.MinInt64, 99999 * time.Hour}
	return values[r.IntN(len(values))]
}

func randomTime(r *rand.Rand) time.Time {
	values := []time.Time{{}, noon(), noon().Add(-time.Hour), noon().Add(time.Hour), time.Unix(1<<40, 0), time.Unix(-1<<40, 0)}
	return values[r.IntN(len(values))]
}

func randomSnapshot(r *rand.Rand) cluster.Snapshot {
	states := []cluster.State{cluster.StatePending, cluster.StateLoading, cluster.StateReady, cluster.StateDegraded, cluster.StateDraining, cluster.StateDrained, cluster.StateFailed, cluster.StateLost, "", "odd"}
	s := cluster.Snapshot{Time: randomTime(r), Cluster: randomText(r), Fresh: cluster.Freshness{
		EtcdOK: r.IntN(2) == 0, EtcdRTT: randomDuration(r), EtcdErr: randomText(r), NATSOK: r.IntN(2) == 0, NATSRTT: randomDuration(r), NATSErr: randomText(r),
		StaleSince: randomTime(r), NextAttempt: randomTime(r)}}
	for range r.IntN(4) {
		s.Nodes = append(s.Nodes, cluster.Node{ID: randomText(r), Name: randomText(r), Host: randomText(r), Version: randomText(r), Devices: []cluster.Device{{ID: randomText(r), Name: randomText(r), Cores: randomInt(r)}}})
	}
	for range r.IntN(30) {
		w := cluster.Worker{WorkerStatus: cluster.WorkerStatus{
			Name: randomText(r), Role: cluster.Role(randomText(r)), Model: randomText(r), Node: randomText(r), Device: randomText(r),
			State: states[r.IntN(len(states))], Reason: randomText(r), InstanceID: cluster.InstanceID(r.Uint64()), LeaseTTLMS: int64(randomInt(r)),
			StartedAt: randomTime(r), UpdatedAt: randomTime(r), Restarts: randomInt(r), RetryAt: randomTime(r), Progress: float64(r.IntN(3)) / 2,
			Stats: cluster.WorkerStats{Running: randomInt(r), Waiting: randomInt(r), RemoteWait: randomInt(r), MaxSeqs: randomInt(r), BlockSize: randomInt(r), KVTotal: randomInt(r), KVActive: randomInt(r), KVCached: randomInt(r), KVIncoming: randomInt(r), Quarantined: randomInt(r), TransfersTotal: r.Uint64(), TransferNanosTotal: r.Uint64(), TransferBytesTotal: r.Uint64()},
		}, Desire: cluster.Desire(randomText(r)), Busy: randomFloat(r), TokS: randomFloat(r), HitRate: randomFloat(r), HeardAt: randomTime(r), Stale: r.IntN(3) == 0}
		if r.IntN(2) == 0 {
			w.Lease, w.Uptime = ptr(randomDuration(r)), ptr(randomDuration(r))
		}
		if r.IntN(3) == 0 {
			w.Drain = &cluster.DrainStatus{Step: cluster.DrainStep(randomText(r)), Deadline: randomTime(r), Sequences: randomInt(r), Left: randomInt(r), Open: []cluster.OpenSequence{{RequestID: randomText(r), OutTokens: randomInt(r), AgeMS: int64(randomInt(r))}}}
		}
		s.Workers = append(s.Workers, w)
	}
	for range r.IntN(30) {
		s.Leases = append(s.Leases, cluster.Lease{ID: cluster.InstanceID(r.Uint64()), Owner: randomText(r), TTL: randomDuration(r), Left: randomDuration(r), Renewed: randomDuration(r), Endpoints: []string{randomText(r)}})
		s.Queue.Messages = append(s.Queue.Messages, cluster.QueuedPrefill{RequestID: randomText(r), Worker: randomText(r), PromptTokens: randomInt(r), Blocks: randomInt(r), Bytes: int64(randomInt(r)), EnqueuedAt: randomTime(r), Deadline: randomTime(r), InWork: r.IntN(2) == 0})
		s.Queue.History = append(s.Queue.History, randomFloat(r))
		s.Events = append(s.Events, cluster.KVEvent{Worker: randomText(r), EventID: r.Uint64(), Kind: cluster.KVEventKind(randomText(r)), Count: randomInt(r), StartPosition: randomInt(r), Reason: randomText(r), Time: randomTime(r), Removed: []uint64{r.Uint64()}})
		d := cluster.RouterDecision{RequestID: randomText(r), Time: randomTime(r), Phase: cluster.Role(randomText(r)), Policy: randomText(r), Chosen: randomText(r), PromptToks: randomInt(r), Blocks: randomInt(r), DecidedNS: int64(randomInt(r)), Prefill: randomText(r), PrefillWhy: randomText(r), PrefillWay: randomText(r), Overlap: randomInt(r)}
		for range r.IntN(4) {
			c := cluster.RouteCandidate{Worker: randomText(r), Load: randomInt(r), Overlap: randomInt(r), Excluded: randomText(r)}
			if f := randomFloat(r); f != nil {
				c.Cost = *f
			}
			d.Candidates = append(d.Candidates, c)
		}
		s.Decisions = append(s.Decisions, d)
	}
	if r.IntN(2) == 0 {
		s.Queue.Prefill, s.Queue.Waiting, s.Queue.AdmittedS = ptr(randomInt(r)), ptr(randomInt(r)), randomFloat(r)
		s.Topology = &cluster.Topology{Model: cluster.ModelSpec{Name: randomText(r)}}
		s.KVEventLag, s.KVEventRate, s.KVEventGaps = ptr(randomDuration(r)), randomFloat(r), r.Uint64()
	}
	if r.IntN(2) == 0 {
		s.Caches = &cluster.KVCaches{At: randomTime(r), Frontends: randomInt(r), Error: randomText(r)}
		for i := range s.Workers {
			k := cluster.KVCache{Worker: randomText(r), InstanceID: s.Workers[i].InstanceID, Approximate: r.IntN(3) == 0, EventRate: randomFloat(r), EventAt: randomTime(r)}
			if r.IntN(2) == 0 {
				k.Index = &cluster.KVIndexWorker{Device: randomInt(r), Host: randomInt(r), Disk: randomInt(r), Epoch: r.Uint64(), OutOfDateSince: randomTime(r), GapsTotal: r.Uint64()}
			}
			if k.Index != nil && r.IntN(2) == 0 {
				k.Index.Recent = &cluster.KVAccuracy{Predicted: r.Uint64(), Found: r.Uint64(), False: r.Uint64()}
			}
			s.Caches.Workers = append(s.Caches.Workers, k)
		}
	}
	s.Latency = cluster.Latency{WindowS: randomInt(r), Requests: r.Uint64(), TTFT: cluster.Percentiles{P50: randomFloat(r), P99: randomFloat(r)}, Transfer: randomFloat(r), TransferBS: randomFloat(r)}
	for range r.IntN(3) {
		s.Notices = append(s.Notices, randomText(r))
	}
	return s
}

// exercise shows random snapshots on a screen of changing size while keys are
// pressed, and checks the shape of every frame.
func exercise(t *testing.T, seed uint64, width, height int, keys []byte) {
	r := rand.New(rand.NewPCG(seed, 7))
	opts := Options{ASCII: seed%3 == 0, Zoom: seed%5 == 0}
	if seed%4 == 0 {
		opts.Replay = &Replay{First: randomTime(r), Last: randomTime(r), Speed: *cmp.Or(randomFloat(r), ptr(2.0))}
	}
	if seed%7 == 0 {
		opts.Recording = randomText(r)
	}
	sc := newScreen(t, randomSnapshot(r), width, height, opts)
	names := []string{"j", "k", "g", "G", "ctrl+d", "ctrl+u", "tab", "shift+tab", "1", "2", "3", "4", "5", "6", "enter", "esc", "/", ":", "s", "S", "d", "r", "p", "+", "-", "z", "y", "?", "M", "w", "n", "i", "[", "]", "{", "}", ",", ".", "backspace", "ctrl+w", "x", "é", " "}
	checkShape(t, sc.m.View(), width, height)
	for i, k := range keys {
		switch {
		case k == 255:
			sc.send(snapshotMsg{randomSnapshot(r), noon()})
		case k == 254:
			sc.tick(time.Duration(r.IntN(3000)) * time.Millisecond)
		default:
			sc.press(names[int(k)%len(names)])
		}
		if i%3 == 0 || i == len(keys)-1 {
			checkShape(t, sc.m.View(), width, height)
		}
	}
}

func FuzzScreen(f *testing.F) {
	f.Add(uint64(1), uint16(100), uint16(30), []byte{14, 0, 1, 2, 255, 254})
	f.Add(uint64(2), uint16(60), uint16(12), []byte{20, 6, 14, 26, 27})
	f.Add(uint64(3), uint16(80), uint16(24), []byte{16, 32, 33, 14, 25})
	f.Add(uint64(4), uint16(0), uint16(0), []byte{17, 32, 14})
	f.Add(uint64(5), uint16(61), uint16(200), []byte{13, 14, 0, 0, 15, 26})
	f.Fuzz(func(t *testing.T, seed uint64, w, h uint16, keys []byte) {
		exercise(t, seed, int(w%250), int(h%120), keys[:min(len(keys), 40)])
	})
}

func TestRandomScreensKeepTheirShape(t *testing.T) {
	patience.OneGoroutine(t)
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 1))
		keys := make([]byte, 30)
		for i := range keys {
			keys[i] = byte(r.Uint32())
		}
		w, h := r.IntN(200), r.IntN(70)
		t.Run(fmt.Sprintf("seed %d at %dx%d", seed, w, h), func(t *testing.T) { exercise(t, seed, w, h, keys) })
	}
}

func viewAllocs(workers int) float64 {
	m := newModel(nil, nil, draw.PlainTheme(), Options{Now: noon}, paneTable())
	m.shown.Width, m.shown.Height = 160, 50
	m.take(snapshotMsg{manyWorkers(workers), noon()})
	m.settle()
	return patience.Allocs(5, func() {
		m.dirty = true
		_ = m.View()
	})
}

func TestDrawingCostsTheVisibleRowsOnly(t *testing.T) {
	if few, many := viewAllocs(50), viewAllocs(5000); many > few*1.1 {
		t.Errorf("a frame of 5000 workers allocates %v times, one of 50 workers %v times", many, few)
	}
}

func BenchmarkViewThousandWorkers(b *testing.B) {
	m := newModel(nil, nil, draw.PlainTheme(), Options{Now: noon}, paneTable())
	m.shown.Width, m.shown.Height = 160, 50
	m.take(snapshotMsg{manyWorkers(1000), noon()})
	m.settle()
	b.ReportAllocs()
	for b.Loop() {
		m.dirty = true
		_ = m.View()
	}
}

func BenchmarkSnapshotThousandWorkers(b *testing.B) {
	s := manyWorkers(1000)
	m := newModel(nil, nil, draw.PlainTheme(), Options{Now: noon}, paneTable())
	m.shown.Width, m.shown.Height = 160, 50
	b.ReportAllocs()
	for b.Loop() {
		m.take(snapshotMsg{s, noon()})
		m.settle()
	}
}
