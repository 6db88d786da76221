package replicasync

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
)

// answerIn bounds the wait for an answer.
const answerIn = 5 * time.Second

var errTooLarge = errors.New("the answer is too large")

// sendFlights gives another frontend all flights of this one.
func (s *Sync) sendFlights(_ context.Context, _ *requestplane.Request, send func(any) error) error {
	changes, epoch, next := s.outbox.snapshot()
	for {
		n := batch(changes)
		page := protocol.FlightsPage{Frontend: s.cfg.Runtime.ID(), Epoch: epoch, Next: next, Changes: changes[:n]}
		changes = changes[n:]
		if err := send(page); err != nil || len(changes) == 0 {
			return err
		}
	}
}

// ask asks a frontend for its flights and applies its answer.
func (s *Sync) ask(ctx context.Context, p *peer) {
	s.mu.Lock()
	at := p.at
	s.mu.Unlock()
	pages, err := s.fetch(ctx, at)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.peers[at.InstanceID] != p {
		return // it has left
	}
	if err == nil {
		err = p.answer(pages, time.Now())
	}
	if err != nil {
		p.failed(time.Now())
		s.cfg.Log.Debug("flights not fetched", "frontend", at.Node, "error", err)
	}
}

func (s *Sync) fetch(ctx context.Context, at cluster.Instance) (pages []protocol.FlightsPage, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerIn)
	defer cancel()
	stream, err := s.client.Call(ctx, at, fmt.Sprintf("flights-%016x", rand.Uint64()), nil, protocol.FlightsRequest{})
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	for changes, hashes := 0, 0; changes <= 2*flightsMost && hashes <= answerHashes; {
		var p protocol.FlightsPage
		switch err := stream.Recv(ctx, &p); {
		case errors.Is(err, io.EOF):
			return pages, nil
		case err != nil:
			return nil, err
		}
		pages = append(pages, p)
		changes += max(1, len(p.Changes))
		for _, c := range p.Changes {
			hashes += len(c.Hashes)
		}
	}
	return nil, errTooLarge
}
