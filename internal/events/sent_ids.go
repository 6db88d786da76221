package events

// sentIDs remembers the stream positions of recent messages, for Remove.
type sentIDs struct {
	max   int
	seqs  map[string]uint64
	order []sentID // oldest first; may hold ids that were taken
}

type sentID struct {
	id  string
	seq uint64
}

func (s *sentIDs) put(id string, seq uint64) {
	if s.seqs == nil {
		s.seqs = make(map[string]uint64)
	}
	s.seqs[id] = seq
	s.order = append(s.order, sentID{id, seq})
	for len(s.order) > s.max {
		if old := s.order[0]; s.seqs[old.id] == old.seq {
			delete(s.seqs, old.id)
		}
		s.order = s.order[1:]
	}
}

func (s *sentIDs) take(id string) (uint64, bool) {
	seq, ok := s.seqs[id]
	delete(s.seqs, id)
	return seq, ok
}
