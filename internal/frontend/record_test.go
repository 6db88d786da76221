package frontend

import (
	"errors"
	"io"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/blockhash"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/runtime/runtimetest"
)

var recordBegin = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

func TestRecordForgetsWhatIsOld(t *testing.T) {
	at := func(m int) time.Time { return recordBegin.Add(time.Duration(m) * time.Minute) }
	r := &record{since: at(0)}
	add := func(now, arrived, n int) {
		r.add(at(now), cluster.RecordedRequest{At: at(arrived), Prompt: n, Blocks: []uint64{uint64(n)}})
	}
	add(2, 1, 1)
	add(31, 30, 2)
	add(32, 5, 3) // it took long
	list := func(now, from int) (out []int, since time.Time) {
		all, since := r.of(at(now), at(from))
		for _, q := range all {
			out = append(out, q.Prompt)
		}
		return out, since
	}
	for _, tc := range []struct {
		now, from int
		want      []int
		since     int
	}{
		{33, -100, []int{1, 2, 3}, 0}, {33, 1, []int{1, 2, 3}, 1}, {33, 2, []int{2, 3}, 2}, {33, 6, []int{2}, 6}, {64, -100, []int{2, 3}, 4}, {66, -100, []int{2}, 6}, {200, -100, nil, 140},
	} {
		if got, since := list(tc.now, tc.from); !slices.Equal(got, tc.want) || !since.Equal(at(tc.since)) {
			t.Errorf("at %d from %d: %v since %s", tc.now, tc.from, got, since)
		}
	}
	add(62, 61, 4)
	if r.blocks != 3 || len(r.list)-r.head != 3 {
		t.Errorf("%d blocks of %d requests are kept", r.blocks, len(r.list)-r.head)
	}
	r.forget()
	if got, since := list(70, -100); got != nil || !since.Equal(at(70)) {
		t.Errorf("forgotten: %v since %s", got, since)
	}
}

// Memory is bounded by requests and by blocks, and what is left out is told.
func TestRecordIsBounded(t *testing.T) {
	for _, tc := range []struct{ requests, blocks, kept int }{{recordedRequests + 1000, 1, recordedRequests}, {600, 1000, recordedBlocks / 1000}} {
		r := &record{since: recordBegin}
		at := func(i int) time.Time { return recordBegin.Add(time.Duration(i) * time.Millisecond) }
		blocks := make([]uint64, tc.blocks)
		for i := range tc.requests {
			r.add(at(i), cluster.RecordedRequest{At: at(i), Blocks: blocks})
		}
		got, since := r.of(at(tc.requests), time.Time{})
		if first := tc.requests - tc.kept; len(got) < tc.kept || len(got) > tc.kept+1 || !since.Equal(at(first-1)) || !got[len(got)-1].At.Equal(at(tc.requests-1)) {
			t.Errorf("%d of %d are kept, since %s", len(got), tc.requests, since)
		}
		if len(r.list) > 2*tc.kept+1 || r.blocks > recordedBlocks {
			t.Errorf("%d slots, %d blocks", len(r.list), r.blocks)
		}
	}
}

// Prompts have the blocks in common in which they are alike, also where the last one is short.
func TestCoarse(t *testing.T) {
	prompt := func(n int, change ...int) []uint32 {
		p := make([]uint32, n)
		for i := range p {
			p[i] = uint32(i * i)
		}
		for _, i := range change {
			p[i]++
		}
		return p
	}
	image := func(start, end int, key byte) []blockhash.Media {
		return []blockhash.Media{{Start: start, End: end, Key: blockhash.Key{key}}}
	}
	whole := coarse(prompt(1300), nil, 7)
	for name, tc := range map[string]struct {
		hashes       []uint64
		blocks, same int
	}{
		"the same":                  {coarse(prompt(1300), nil, 7), 3, 3},
		"full blocks":               {coarse(prompt(1024), nil, 7), 2, 2},
		"shorter":                   {coarse(prompt(1299), nil, 7), 3, 2},
		"short":                     {coarse(prompt(511), nil, 7), 1, 0},
		"another end":               {coarse(prompt(1300, 1299), nil, 7), 3, 2},
		"another middle":            {coarse(prompt(1300, 600), nil, 7), 3, 1},
		"another beginning":         {coarse(prompt(1300, 0), nil, 7), 3, 0},
		"another model":             {coarse(prompt(1300), nil, 8), 3, 0},
		"an image at the end":       {coarse(prompt(1300), image(1200, 1210, 1), 7), 3, 2},
		"an image across two":       {coarse(prompt(1300), image(1000, 1100, 1), 7), 3, 1},
		"an image and none of both": {coarse(nil, nil, 7), 0, 0},
	} {
		same := 0
		for same < len(tc.hashes) && tc.hashes[same] == whole[same] {
			same++
		}
		if len(tc.hashes) != tc.blocks || same != tc.same {
			t.Errorf("%s: %d blocks, %d of them the same", name, len(tc.hashes), same)
		}
	}
	one, other := coarse(prompt(1300), image(1200, 1210, 1), 7), coarse(prompt(1300), image(1200, 1210, 2), 7)
	if moved := coarse(prompt(1300), image(1201, 1210, 1), 7); one[2] == other[2] || one[2] == moved[2] {
		t.Error("another image, or another place of it, has the same hash")
	}
	if other := coarse(prompt(1300, 600), nil, 7); other[2] == whole[2] {
		t.Error("a hash says nothing of what is before its block")
	}
	if a, b := coarse(prompt(511), nil, 7), coarse(prompt(511), nil, 7); a[0] != b[0] || a[0] == coarse(prompt(510), nil, 7)[0] {
		t.Error("short prompts are told apart by something else than their tokens")
	}
}

// Frontends tell of each answer when it came and how long it was, and nothing where that is turned off.
func TestLoadIsRecorded(t *testing.T) {
	w := newWorld(t)
	w.fake("worker-1", say("abcdef"))
	var off atomic.Bool
	f := w.configured(func(c *Config) {
		c.Settings = func() Settings { return Settings{Policy: "least-loaded", RecordLoad: !off.Load()} }
	}).waitModel(1)
	began := time.Now()
	for range 2 {
		wholeAnswer(t, f.post("/v1/completions", textBody(body{"n": 2})))
	}
	calls := runtimetest.Client(t, f.cfg.Runtime, cluster.ComponentFrontend, cluster.EndpointLoad)
	inst := waitInstances(t, calls, 1)[0]
	ask := func(ago time.Duration) (pages []cluster.RecordedLoad) {
		t.Helper()
		stream, err := calls.Call(t.Context(), inst, "r", nil, protocol.LoadRequest{Since: ago})
		if err != nil {
			t.Fatal(err)
		}
		defer stream.Close()
		for {
			var p cluster.RecordedLoad
			switch err := stream.Recv(t.Context(), &p); {
			case errors.Is(err, io.EOF):
				return pages
			case err != nil:
				t.Fatal(err)
			}
			pages = append(pages, p)
		}
	}
	pages := ask(0)
	if len(pages) != 1 || pages[0].Frontend != "node-1" || pages[0].Off || !pages[0].Since.Before(began) || len(pages[0].Requests) != 4 {
		t.Fatalf("%+v", pages)
	}
	all := pages[0].Requests
	for i, q := range all {
		if q.Model != testModel || q.Prompt != 4 || q.Output != 6 || q.At.Before(began.Round(0)) || len(q.Blocks) != 1 || q.Blocks[0] != all[0].Blocks[0] || i > 0 && q.At.Before(all[i-1].At) {
			t.Errorf("%+v", q)
		}
	}
	if p := ask(time.Nanosecond); len(p) != 1 || len(p[0].Requests) != 0 || time.Since(p[0].Since) > time.Minute {
		t.Errorf("of the last nanosecond: %+v", p)
	}
	for range 2 * toldRecorded {
		f.record.add(time.Now(), cluster.RecordedRequest{At: time.Now(), Blocks: make([]uint64, 10)})
	}
	n := 0
	for _, p := range ask(0) {
		blocks := 0
		for _, q := range p.Requests {
			blocks += len(q.Blocks)
		}
		if n += len(p.Requests); len(p.Requests) > toldRecorded || blocks > toldBlocks {
			t.Errorf("a page of %d requests and %d blocks", len(p.Requests), blocks)
		}
	}
	if n != 2*toldRecorded+4 {
		t.Errorf("%d requests in pages", n)
	}
	off.Store(true)
	wholeAnswer(t, f.post("/v1/completions", textBody(nil)))
	if p := ask(0); len(p) != 1 || !p[0].Off || p[0].Requests != nil {
		t.Errorf("turned off: %+v", p)
	}
	off.Store(false)
	if p := ask(0); len(p) != 1 || p[0].Off || p[0].Requests != nil || p[0].Since.Before(began) {
		t.Errorf("turned on again: %+v", p)
	}
}
