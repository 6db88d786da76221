package store

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"
)

// openStream finds or makes the stream.
func (n *NATS) openStream(ctx context.Context) (*jetstream.StreamInfo, error) {
	asking, cancel := context.WithTimeout(ctx, natsRequest)
	defer cancel()
	s, err := n.js.Stream(asking, n.stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		s, err = n.makeStream(ctx)
	}
	if err != nil {
		return nil, err
	}
	info := s.CachedInfo()
	cfg := info.Config
	if cfg.MaxAge != 0 || cfg.MaxMsgs > 0 || cfg.MaxMsgsPerSubject < 2 || !slices.Equal(cfg.Subjects, []string{n.prefix + ">"}) || cfg.Retention != jetstream.LimitsPolicy {
		return nil, fmt.Errorf("the stream %s was made for something else: its messages are not kept", n.stream)
	}
	if info.Cluster != nil && cfg.Replicas < natsReplicas {
		cfg.Replicas = natsReplicas
		if _, err := n.js.UpdateStream(ctx, cfg); err != nil {
			n.logger.Debug("the store's stream stays on fewer servers", "nats", n.name, "replicas", info.Config.Replicas, "err", err)
		}
	}
	return info, nil
}

// makeStream makes the stream on as many servers as there are, up to natsReplicas.
func (n *NATS) makeStream(ctx context.Context) (s jetstream.Stream, err error) {
	for _, replicas := range []int{natsReplicas, 1} {
		s, err = n.js.CreateStream(ctx, jetstream.StreamConfig{
			Name:              n.stream,
			Description:       "shared state of a dynctl cluster",
			Subjects:          []string{n.prefix + ">"},
			MaxMsgsPerSubject: natsHistory,
			Discard:           jetstream.DiscardNew,
			Storage:           jetstream.FileStorage,
			Replicas:          replicas,
			DenyDelete:        true,
			AllowRollup:       true, // as buckets have it
		})
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // another process has just made it
			return n.js.Stream(ctx, n.stream)
		}
		if err == nil || natsCode(err) == 0 {
			break
		}
	}
	return s, err
}
