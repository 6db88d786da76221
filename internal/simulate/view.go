package simulate

import (
	"slices"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/router"
)

// viewOf describes the ready workers of a role to the router, with what the last lookup of
// the index found. It is valid until the next view of that role.
func (s *simulation) viewOf(role cluster.Role) router.View {
	p, list := s.Profile, &s.view[1]
	if role == cluster.RolePrefill {
		p, list = s.PrefillProfile, &s.view[0]
	}
	*list = (*list)[:0]
	for _, w := range s.workers {
		if w.role != role || w.state != Ready {
			continue
		}
		*list = append(*list, router.Candidate{
			ID: w.id, Worker: w.name, PrefillRate: w.status.rate, TransferRate: p.KV.TransferRate(),
			KVBlocks: p.Limits.KVBlocks, KVInUse: w.status.inUse, MaxBatchTokens: p.Limits.MaxBatchTokens,
		})
	}
	for _, o := range s.match.Overlaps {
		if at, found := slices.BinarySearchFunc(*list, o.Worker, func(c router.Candidate, id cluster.InstanceID) int { return int(c.ID) - int(id) }); found {
			(*list)[at].Overlap.Device = o.Total()
		}
	}
	return router.View{Candidates: *list, Limits: s.Busy}
}

// find returns the worker with an id.
func (s *simulation) find(id cluster.InstanceID) *worker {
	at, found := slices.BinarySearchFunc(s.workers, id, func(w *worker, id cluster.InstanceID) int { return int(w.id) - int(id) })
	if !found {
		return nil
	}
	return s.workers[at]
}
