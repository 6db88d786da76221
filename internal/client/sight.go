package client

import (
	"context"
	"errors"
	"fmt"
	"path"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/store"
)

// ErrNoSight is returned for encode workers of a model whose workers take no images.
var ErrNoSight = errors.New("takes no images")

// CheckSight returns an error that wraps [ErrNoSight] if a topology asks for encode workers
// that the one before did not ask for, of a model whose prefill and decode workers take no
// images. Their cards say so: the model lies on the nodes. It returns nil while no worker
// serves the model, whose nodes then find out themselves.
func (c *Cluster) CheckSight(ctx context.Context, before, after cluster.Topology) error {
	for _, pool := range after.PoolNames() {
		if err := c.checkSight(ctx, before.In(pool), after.In(pool)); err != nil {
			return err
		}
	}
	return nil
}

// checkSight is CheckSight for one pool.
func (c *Cluster) checkSight(ctx context.Context, before, after cluster.Topology) error {
	if after.Encode == 0 || after.Encode <= before.Encode && after.Model == before.Model {
		return nil
	}
	kvs, _, err := c.store.List(ctx, cluster.CardPrefix(c.Namespace))
	if err != nil {
		return fmt.Errorf("list model cards: %w", err)
	}
	v, err := c.View(ctx)
	if err != nil {
		return err
	}
	cards := map[cluster.InstanceID]cluster.ModelCard{}
	for _, kv := range kvs {
		id, err := cluster.ParseInstanceID(path.Base(kv.Key))
		if err != nil {
			continue // of nobody who could be asked
		}
		if cards[id], err = store.DecodeJSON[cluster.ModelCard](kv); err != nil {
			return err
		}
	}
	blind := ""
	for _, w := range v.Workers() {
		card, known := cards[w.InstanceID]
		a := v.Assignments[w.Name]
		switch {
		case !known || !w.Role.HoldsKV() || a.Model.Path != after.Model.Path || a.Generation != w.Generation: // a model to come
		case card.Images != nil:
			return nil
		default:
			blind = w.Name
		}
	}
	if blind == "" {
		return nil
	}
	return fmt.Errorf("encode workers: the model %s %w, as %s serves it: encode workers need a model with a vision tower (dynctl up --model); the log of its node says if the model has one that cannot be used", after.Model.Name, ErrNoSight, blind)
}
