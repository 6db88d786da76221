package tui

import (
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/tui/detail"
	"github.com/dynctl/dynctl/internal/tui/draw"
	"github.com/dynctl/dynctl/internal/tui/moment"
	"github.com/dynctl/dynctl/internal/tui/plain"
)

// withEncode adds an encode worker, which is loaded and has neither KV nor tokens.
func withEncode() cluster.Snapshot {
	s := labSnapshot()
	s.Topology.Encode = 1
	w := s.Workers[0]
	w.Name, w.Role, w.InstanceID, w.Device = "worker-8", cluster.RoleEncode, 0x7f08, "cpu:0"
	w.Stats = cluster.WorkerStats{
		Running: 1, Waiting: 3, RequestsTotal: 1802, FinishedTotal: 1797, CancelledTotal: 1, EncodedTotal: 611, ImagesCachedTotal: 1190, Embeddings: 34, EmbeddingsBytes: 96 << 20, EmbeddingsLimit: 256 << 20,
		TransfersTotal: 1797, TransferBytesTotal: 4 << 30, TransferNanosTotal: 18e9,
	}
	w.TokS, w.HitRate, w.Images = nil, nil, &cluster.ImageRates{EncodedS: new(0.83), HitRate: new(0.66), MovedBS: new(4.2e6)}
	s.Workers = append(s.Workers, w)
	return s
}

// An encode worker stands among the others, in a color of its own, and shows no zeros for
// what it does not have.
func TestEncodeWorkerInTheList(t *testing.T) {
	sc := newScreen(t, withEncode(), 120, 40, Options{})
	line := ""
	for l := range strings.Lines(sc.m.View()) {
		if strings.Contains(l, "worker-8 ") && strings.Contains(l, "encode") {
			line = l
		}
	}
	fields := strings.Fields(strings.Trim(strings.TrimSpace(line), "│"))
	// NAME ROLE DEVICE STATE SEQS used/total TOK/S PREFIX% FALSE% LEASE ...
	if got := strings.Join(fields, " "); !strings.HasPrefix(got, "worker-8 encode cpu0 32c ● ready 1+3 hits 66% 0.8 img/s 4.2 MB/s - - 8.7s ") {
		t.Errorf("the row is %q", got)
	}
	styles := map[draw.Style]bool{}
	for _, r := range cluster.Roles {
		styles[moment.RoleStyle(r)] = true
	}
	if len(styles) != len(cluster.Roles) || styles[draw.Plain] {
		t.Errorf("roles share styles: %v", styles)
	}
}

// The images of an encode worker are no sequences of its node.
func TestNodeOfAnEncodeWorker(t *testing.T) {
	running := 0
	for _, w := range labSnapshot().Workers {
		running += w.Stats.Running
	}
	m := moment.New(false, noon().Location())
	m.Take(withEncode())
	if _, f := m.Node("n1"); f == nil || f.Running != running || f.Workers != 8 {
		t.Errorf("facts %+v, want %d sequences", f, running)
	}
}

// The screen of an encode worker has its images and totals, and nothing of KV, tokens and
// prefills.
func TestScreenOfAnEncodeWorker(t *testing.T) {
	sc := newScreen(t, withEncode(), 160, 50, Options{Worker: "worker-8"})
	sc.has("images (1+3)", "encoding       1   queued 3", "encoded        0.8 img/s   cache hits 66%", "moved          4.2 MB/s of embeddings", "96.0 MiB of 256 MiB", "embeddings of 34 images",
		"asked for      1,802 images", "from cache     1,190", "read           1,797", "embeddings read by others", "4.0 GiB", "TP degree", "asking worker-8")
	sc.lacks("KV blocks -", "KV events", "KV coming", "KV transfers", "tokens", "prefill ", "prefix hit", "preempted", "evicted", "fallback")
	newScreen(t, withEncode(), 160, 50, Options{Worker: "worker-3"}).has("KV blocks", "remote prefill", "preempted")

	sc = newScreen(t, withEncode(), 120, 40, Options{})
	sc.press(":", "type:drain worker-8", "enter")
	sc.has("images in work 1   waiting 3", "New images go to others", "the last serving encode worker: workers")
	sc.lacks("KV coming")
}

// A scale of encode workers is over when they serve, and the summary has them.
func TestScaleOfEncodeWorkers(t *testing.T) {
	if got := shape(cluster.Topology{Prefill: 2, Decode: 5, Encode: 1}); got != "2 prefill + 5 decode + 1 encode" {
		t.Errorf("shape %q", got)
	}
	sc := lab(t)
	sc.run(sc.press(":", "type:scale encode=1", "enter", "tab", "enter"))
	s := labSnapshot()
	s.Topology.Encode = 1
	sc.at(s)
	sc.lacks("the cluster has")
	s = withEncode()
	s.Workers[6].Desire = cluster.DesireDrain
	sc.at(s)
	sc.has("the cluster has 2 prefill + 5 decode + 1 encode workers")
}

// Narrow screens keep what an encode worker does, and a worker that was asked lists the images in
// hand, also when they were recorded.
func TestEncodeWorkerOnSmallScreens(t *testing.T) {
	newScreen(t, withEncode(), 80, 24, Options{}).has("worker-8", "encode", "1+3", "hits 66%", "0.8 img/s", "4.2 MB/s")
	s := withEncode()
	s.Activity = &cluster.Activity{Worker: "worker-8", Images: []cluster.ImageWork{
		{RequestID: "r-1", Worker: "worker-3", State: cluster.ImageEncoding, Tokens: 1088, AgeMS: 1500}, {RequestID: "r-2", Worker: "worker-1", State: cluster.ImageOffered, Cached: true, Tokens: 64, AgeMS: 100},
	}, ImagesTotal: 5}
	sc := newScreen(t, s, 80, 40, Options{Worker: "worker-8"})
	sc.has("encoding         r-1      worker-3   1,088  1.5s", "offered, cached  r-2      worker-1      64  0.1s", "and 3 more")
	tables := detail.ActivityTables(s.Activity, plain.Options{Exact: true})
	if len(tables) != 1 {
		t.Errorf("%d tables", len(tables))
	}
	w := &s.Workers[len(s.Workers)-1]
	w.Images.EncodedS = new(0.04)
	w.Images.HitRate, w.Images.MovedBS = nil, nil
	newScreen(t, s, 80, 24, Options{}).has("hits -", "0.04 img/s")
}

// A decision shows who encoded the images of the prompt, and how long that took.
func TestDecisionWithImages(t *testing.T) {
	s := withEncode()
	s.Decisions[0].Images = &cluster.RoutedImages{Count: 3, Cached: 1, EncodeNS: 250e6, MoveNS: 4e6, Bytes: 2 << 20, By: []string{"worker-8"}}
	s.Decisions[0].KV, s.Decisions[0].DecodeNS = &cluster.RoutedKV{NS: 2e6, Bytes: 3 << 20}, 50e6
	sc := newScreen(t, s, 120, 40, Options{})
	sc.press("6", "enter")
	sc.has("images 3, 1 computed before   encode 246 ms at worker-8   embeddings 4.0 ms, 2.0 MiB", "   KV 2.0 ms, 3.0 MiB   decode 50.0 ms")
}

// The screen of a worker that stands for a server lists the server's adapters.
func TestScreenOfAServerWithAdapters(t *testing.T) {
	s := labSnapshot()
	s.Workers[0].ServerStatus = &cluster.ServerStatus{Adapters: []string{"sql", "tuned"}}
	s.Workers[1].ServerStatus = &cluster.ServerStatus{Adapters: strings.Split("a b c d e f g", " ")}
	newScreen(t, s, 160, 50, Options{Worker: s.Workers[0].Name}).has("adapters       sql, tuned")
	newScreen(t, s, 160, 50, Options{Worker: s.Workers[1].Name}).has("adapters       7: a, b, c, d, e, f, ...")
	newScreen(t, s, 160, 50, Options{Worker: s.Workers[2].Name}).lacks("adapters")
}
