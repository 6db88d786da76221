package route

import (
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/router"
)

// share makes the frontends. Their indexes would be equal, so they share one; what they
// have in flight they tell each other, if they do, as package replicasync does.
func (s *simulation) share() {
	for range max(1, s.Frontends) {
		s.loads = append(s.loads, router.NewLoad())
	}
	if s.SyncDelay <= 0 {
		return
	}
	for i, of := range s.loads {
		var mirrors []*router.Mirror
		for k, l := range s.loads {
			if k != i {
				mirrors = append(mirrors, router.NewMirror(l))
			}
		}
		of.Observe(func(c cluster.FlightChange) {
			s.at(s.now+s.SyncDelay, func() error {
				for _, m := range mirrors {
					m.Apply(c)
				}
				return nil
			})
		})
	}
}
