package worker

import (
	"context"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/ondemand"
)

// encodings gathers the images that a worker encodes, for one event in an interval: images from
// the cache would be too many for an event each.
type encodings struct {
	publishing *ondemand.Task

	mu      sync.Mutex
	images  []cluster.Encoding
	omitted int
}

// encodingsEvery is the time between two events about images.
const encodingsEvery = 200 * time.Millisecond

// newEncodings calls publish at the end of an interval that had images. The caller must close
// publishing.
func newEncodings(publish func(context.Context)) *encodings {
	return &encodings{publishing: ondemand.New(context.Background(), publish)}
}

// put adds an image. Beyond the limit of an event it is only counted.
func (e *encodings) put(image cluster.Encoding) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch len(e.images) {
	case 0:
		e.publishing.WakeIn(encodingsEvery)
	case cluster.MaxEncodings:
		e.omitted++
		return
	}
	e.images = append(e.images, image)
}

// take returns the images of the interval and begins another one.
func (e *encodings) take() (images []cluster.Encoding, omitted int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	images, omitted = e.images, e.omitted
	e.images, e.omitted = nil, 0
	return images, omitted
}

// publishEncodings tells of the images of an interval.
func (w *Worker) publishEncodings(ctx context.Context) {
	images, omitted := w.encodings.take()
	if len(images) == 0 {
		return
	}
	e := cluster.Encodings{WorkerID: w.term.Load().drt.ID(), Worker: w.Name(), Images: images, Omitted: omitted}
	_ = w.cfg.Bus.Publish(ctx, w.subject(cluster.TopicEncodings), e) // lost events are counted by the bus
}
