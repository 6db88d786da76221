package worker

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/protocol"
)

// However many images there are, an interval has one event, which counts what it leaves out.
func TestEncodingsOfAnInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var e *encodings
		var told []string
		begin := time.Now()
		e = newEncodings(func(context.Context) {
			images, omitted := e.take()
			told = append(told, fmt.Sprint(len(images), " ", omitted, " ", images[0].RequestID, " at ", time.Since(begin)))
		})
		for i := range cluster.MaxEncodings + 3 {
			e.put(cluster.Encoding{RequestID: fmt.Sprint("r-", i)})
		}
		time.Sleep(encodingsEvery - time.Millisecond)
		e.put(cluster.Encoding{RequestID: "late"})
		time.Sleep(time.Second)
		e.put(cluster.Encoding{RequestID: "next"})
		time.Sleep(time.Second)
		e.publishing.Close() // and with it what it has told
		if want := []string{"64 4 r-0 at 200ms", "1 0 next at 1.399s"}; !slices.Equal(told, want) {
			t.Errorf("told %q, want %q", told, want)
		}
	})
}

// An encode worker tells of each image that it encoded or had, and a worker that encodes for
// itself of those; images that a worker has in its own cache are nobody's event.
func TestEncodingsAreTold(t *testing.T) {
	w := newWorld(t)
	a := w.album()
	var mu sync.Mutex
	var told []string
	sub, err := w.c.Bus.Subscribe(t.Context(), events.Subject(cluster.DefaultNamespace, "*", cluster.TopicEncodings), func(e events.Event) {
		var got cluster.Encodings
		if err := e.Decode(&got); err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, x := range got.Images {
			if x.TookNS <= 0 || x.Time.IsZero() || got.WorkerID == 0 || got.Omitted != 0 {
				t.Errorf("%+v", got)
			}
			told = append(told, fmt.Sprintf("%s: %s of %s for %s, %d rows, cached %t", got.Worker, x.Content, x.RequestID, x.For, x.Rows, x.Cached))
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	enc := w.start("worker-1", cluster.RoleEncode, sees(&tower{}))
	d, other := w.start("worker-2", cluster.RoleDecode, sees(&tower{})), w.start("worker-3", cluster.RoleDecode, sees(nil))
	for _, x := range []*running{d, other} {
		eventually(t, "the encode worker is known", func() bool { return len(x.sees(cluster.RoleEncode)) == 1 })
	}
	r := seeded(t)
	ask := func(x *running, id string, part protocol.MediaPart) {
		t.Helper()
		req := request(id, prompt(r, 90), 5)
		req.Disagg.Force = "local"
		means := a.illustrate(&req, part)
		check(t, w.generate(t.Context(), x.Name(), req), means, 5)
	}
	door, window := a.put("door", 20, 30), a.put("window", 20, 31)
	ask(d, "first", door)
	ask(d, "again", door) // from its own cache
	ask(other, "elsewhere", door)
	enc.stop(nil) // tells what it has not told
	eventually(t, "the encode worker has left", func() bool { return len(d.sees(cluster.RoleEncode)) == 0 })
	ask(d, "itself", window)
	short := func(p protocol.MediaPart) string { return p.Source.ID[:min(len(p.Source.ID), 12)] }
	want := []string{
		"worker-1: " + short(door) + " of first for worker-2, 30 rows, cached false", "worker-1: " + short(door) + " of elsewhere for worker-3, 30 rows, cached true",
		"worker-2: " + short(window) + " of itself for worker-2, 31 rows, cached false",
	}
	eventually(t, "all is told", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(told) >= len(want)
	})
	mu.Lock()
	defer mu.Unlock()
	if !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
}
