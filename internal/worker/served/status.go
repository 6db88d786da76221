package served

import (
	"context"
	"strings"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/external"
)

// legs counts first legs; see cluster.ServerStatus.
type legs struct {
	begun, failed, stranded uint64
	failure, host           string
}

// maxFailure bounds the text of a failure in a status, in bytes.
const maxFailure = 300

func (s *Server) leg(count func(*legs)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	count(&s.legs)
}

// Status describes the server.
func (s *Server) Status() *cluster.ServerStatus {
	s.mu.Lock()
	st := &cluster.ServerStatus{
		Backend: s.Backend, Version: s.Facts.Version, URL: s.URL, Started: s.Exited != nil, Model: s.Model, Connector: s.Connector, Pair: s.Facts.Pair, Host: s.Host,
		BlockSize: s.Facts.BlockSize, MaxModelLen: s.Facts.MaxModelLen, NoLoad: s.noLoad,
		FirstLegs: s.legs.begun, FailedLegs: s.legs.failed, LegFailure: s.legs.failure, StrandedLegs: s.legs.stranded,
		SideChannel: s.legs.host, NeedsPrefill: s.needsPrefill(), Adapters: s.adapters, OddAdapters: s.odd,
	}
	s.mu.Unlock()
	if s.Facts.Meets != nil {
		st.SideChannel = s.Facts.Meets.Host
	}
	if s.Events != nil {
		st.Events = new(s.Events.Status())
	}
	return st
}

func cut(text string) string { return strings.ToValidUTF8(text[:min(len(text), maxFailure)], "") }

// Describe adds the limits of the server to a card.
func (s *Server) Describe(card *cluster.ModelCard) {
	if n := s.Facts.MaxModelLen; n > 0 {
		card.ContextLength = n
	}
	card.BlockSize = s.BlockSize
	card.Adapters, _ = s.Adapters()
	rt := &card.Runtime
	rt.TotalKVBlocks, rt.MaxNumSeqs, rt.TensorParallel = s.blocks(), s.Facts.MaxSeqs, max(s.Facts.TensorParallel, 1)
	rt.Backend, rt.Exchange = s.Backend, string(s.Engine.Exchange())
	if rt.Exchange != "" {
		rt.Pair = s.Facts.Pair
	}
	switch card.WorkerType {
	case cluster.RolePrefill:
		rt.Meets = s.Facts.Meets
	case cluster.RoleDecode:
		rt.NeedsPrefill = s.needsPrefill()
	}
}

// Resident lists the blocks in the server's prefix cache, as its events tell.
func (s *Server) Resident(ctx context.Context, at func()) ([]uint64, error) {
	if s.Events == nil {
		at()
		return nil, nil
	}
	return s.Events.Resident(ctx, at)
}

// needsPrefill reports that the server was started for the second leg alone.
func (s *Server) needsPrefill() bool {
	return s.Engine.Exchange() == external.ExchangeConcurrent && s.Facts.Mode == string(cluster.RoleDecode)
}
