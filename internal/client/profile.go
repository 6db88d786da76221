package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/profile"
	"github.com/dynctl/dynctl/internal/store"
)

// ErrNoProfile is returned while the cluster does not know the performance of its workers; the text says why.
var ErrNoProfile = errors.New("the cluster does not know the performance of its workers")

// LearnedProfile returns what the cluster has learned of the performance of its workers. It fails with ErrNoProfile while that is
// not enough.
func (c *Cluster) LearnedProfile(ctx context.Context) (profile.Learned, error) {
	l, _, err := store.GetJSON[profile.Learned](ctx, c.store, cluster.ProfileKey(c.Namespace))
	switch {
	case errors.Is(err, store.ErrNotFound):
		return l, fmt.Errorf("%w: no node that leads has told it", ErrNoProfile)
	case err != nil:
		return l, fmt.Errorf("read the profile: %w", err)
	case l.Missing != "":
		return l, fmt.Errorf("%w: %s", ErrNoProfile, l.Missing)
	}
	cards, err := c.ModelCards(ctx)
	if err != nil {
		return l, err
	}
	for _, card := range cards {
		if card.DisplayName == l.Profile.Name && card.ContextLength > 0 {
			l.Profile.Limits.MaxContext = min(l.Profile.Limits.MaxContext, card.ContextLength)
		}
	}
	if err := l.Profile.Validate(); err != nil {
		return l, fmt.Errorf("%w: %w", ErrNoProfile, err)
	}
	return l, nil
}
