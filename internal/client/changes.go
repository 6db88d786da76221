package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/config"
)

// ErrUndeclared is returned where no topology was ever declared.
var ErrUndeclared = errors.New("nothing was ever declared")

// Scale declares other numbers of workers of a pool, "" for the main one. The reason is kept with the new topology, which
// it returns.
func (c *Cluster) Scale(ctx context.Context, pool string, workers cluster.Counts, reason string) (cluster.Topology, error) {
	return c.Declare(ctx, func(t *cluster.Topology, exists bool) error {
		if !exists || pool == "" && t.Model.Name == "" {
			return fmt.Errorf("%w in cluster %s", ErrUndeclared, c.Name)
		}
		t.Reason = reason
		return Scaled(t, pool, workers)
	})
}

// ErrNoPool is returned for a pool that a topology does not have.
var ErrNoPool = errors.New("there is no such pool")

// Scaled changes the numbers of workers of a pool in a topology. The error says what is wrong
// with the new ones.
func Scaled(t *cluster.Topology, pool string, workers cluster.Counts) error {
	if _, named := t.Pools[pool]; pool != "" && !named {
		return fmt.Errorf("pool %s: %w", pool, ErrNoPool)
	}
	view := t.In(pool)
	if view.Model.Name == "" {
		return ErrUndeclared
	}
	for role, n := range workers {
		if count, _ := view.Of(role); count != nil {
			*count = n
		}
	}
	t.Put(pool, view)
	return t.Validate()
}

// RestartAll declares a restart of all workers, some of each role at a time, and returns the
// new topology. Empty limits leave those of the settings.
func (c *Cluster) RestartAll(ctx context.Context, limits cluster.Rollout) (cluster.Topology, error) {
	return c.Declare(ctx, func(t *cluster.Topology, _ bool) error {
		if t.Workers() == 0 {
			return errors.New("there are none")
		}
		t.Restarts++
		t.Rolling = cluster.Rolling{}
		if limits != (cluster.Rollout{}) {
			t.Rolling = cluster.Rolling{Rollout: limits, Restarts: t.Restarts}
		}
		return nil
	})
}

// EncodeSetting reads the text of a run-time setting, as dynctl set takes it. It returns the
// current name of the setting and the value as it is stored.
func EncodeSetting(name, text string) (current string, value json.RawMessage, err error) {
	key, err := config.RuntimeKey(name)
	if err != nil {
		return "", nil, err
	}
	v, err := key.ParseRuntime(text)
	if err != nil {
		return "", nil, fmt.Errorf("%s: %w", name, err)
	}
	value, err = key.EncodeRuntime(v)
	return key.Name, value, err
}

// SettingWords lists the run-time settings as NAME=, and as NAME=VALUE where there are a few
// values.
func SettingWords() (words []string) {
	for _, k := range config.RuntimeKeys() {
		words = append(words, k.Name+"=")
		for _, choice := range k.Choices {
			words = append(words, k.Name+"="+choice)
		}
	}
	return words
}
