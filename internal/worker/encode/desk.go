package encode

import (
	"slices"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/protocol"
)

// desk has the images that an encode worker has in hand, oldest first.
type desk struct {
	mu     sync.Mutex
	images []*image
}

type image struct {
	work  cluster.ImageWork // without its age
	begin time.Time
}

// take notes that somebody wants an image.
func (d *desk) take(req *protocol.EncodeRequest) *image {
	m := &image{cluster.ImageWork{RequestID: req.RequestID, Worker: req.Worker, State: cluster.ImageEncoding, Tokens: req.Part.Rows}, time.Now()}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.images = append(d.images, m)
	return m
}

// offered notes that the embeddings can be read.
func (d *desk) offered(m *image, cached bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	m.work.State, m.work.Cached = cluster.ImageOffered, cached
}

// drop forgets an image.
func (d *desk) drop(m *image) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.images = slices.DeleteFunc(d.images, func(o *image) bool { return o == m })
}

// list returns the oldest images, and the number of all.
func (d *desk) list(limit int, now time.Time) ([]cluster.ImageWork, int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []cluster.ImageWork
	for _, m := range d.images[:min(limit, len(d.images))] {
		work := m.work
		work.AgeMS = now.Sub(m.begin).Milliseconds()
		out = append(out, work)
	}
	return out, len(d.images)
}
