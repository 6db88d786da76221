package served

import (
	"slices"

	"github.com/dynctl/dynctl/internal/cluster"
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
