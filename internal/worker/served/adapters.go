package served

import (
	"context"
	"slices"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/protocol"
)

// Adapters returns the LoRA adapters that are offered, sorted, and a channel that is closed when
// they change. The caller must not change the list.
func (s *Server) Adapters() (names []string, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.adapters, s.changed
}

// noteAdapters takes what the server said last.
func (s *Server) noteAdapters(told []string) {
	names, odd := offered(told)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.odd = odd
	if slices.Equal(names, s.adapters) {
		return
	}
	s.adapters = names
	close(s.changed)
	s.changed = make(chan struct{})
}

// offered returns the adapters that can be offered, of a sorted list, and counts the others.
func offered(told []string) (names []string, odd int) {
	for _, name := range told {
		if len(names) == cluster.MaxAdapters || !cluster.ValidAdapter(name) {
			odd++
			continue
		}
		names = append(names, name)
	}
	return names, odd
}

// renew publishes the card again after each change until ctx ends.
func (d *duty) renew(ctx context.Context, changed <-chan struct{}) {
	for {
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
		var names []string
		names, changed = d.s.Adapters()
		d.s.Log.Info("the adapters of the server have changed", "adapters", len(names))
		if err := d.PublishCard(ctx, nil); err != nil && ctx.Err() == nil {
			d.s.Log.Warn("the model card with the server's adapters is not published yet; the runtime keeps trying", "error", err)
		}
	}
}

// model returns the name by which the server knows what a request asks for: the model, or an adapter
// that it has.
func (d *duty) model(p *protocol.PreprocessedRequest) (string, error) {
	if p.Adapter == "" {
		return d.s.Model, d.CheckModel(p.ModelSum)
	}
	names, _ := d.s.Adapters()
	switch {
	case p.ModelSum != "" && p.ModelSum != cluster.AdapterDigest(d.Model.Digest, p.Adapter):
		return "", unavailable("adapter %q is asked for of another model than that of %s", p.Adapter, d.Worker)
	case !slices.Contains(names, p.Adapter):
		return "", unavailable("the server of %s has no adapter %q now", d.Worker, p.Adapter)
	}
	return p.Adapter, nil
}
