package runtime

import (
	"context"
	"fmt"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/store"
)

// Owned is one key under the runtime's lease. After a lost lease it is written
// again under the new one.
type Owned struct {
	record *record
	value  func(cluster.InstanceID) []byte // the record's mu guards it
}

// PutOwned writes a key under the lease. Both functions get the instance id. They run
// again when it changes, on any goroutine. If the first write fails, PutOwned returns the
// error and keeps nothing.
func (d *DistributedRuntime) PutOwned(ctx context.Context, key func(cluster.InstanceID) string, value func(cluster.InstanceID) []byte) (*Owned, error) {
	o := &Owned{value: value}
	o.record = &record{
		key: key,
		write: func(ctx context.Context, key string, id cluster.InstanceID) error {
			o.record.mu.Lock()
			value := o.value
			o.record.mu.Unlock()
			_, err := d.cfg.Store.Put(ctx, key, value(id), store.WithLease(id))
			return err
		},
	}
	if err := d.add(o.record); err != nil {
		return nil, fmt.Errorf("publish %s: %w", key(d.ID()), err)
	}
	if err := o.record.first(ctx); err != nil {
		return nil, fmt.Errorf("publish %s: %w", key(d.ID()), err)
	}
	return o, nil
}

// Update changes the value. If the write fails, the runtime keeps trying with the newest
// value. After Delete it does nothing.
func (o *Owned) Update(ctx context.Context, value func(cluster.InstanceID) []byte) error {
	return o.record.change(ctx, func() { o.value = value })
}

// Delete removes the key, unless another lease owns it by now. If that fails, the runtime
// keeps trying.
func (o *Owned) Delete(ctx context.Context) error {
	return o.record.change(ctx, func() { o.record.wanted, o.record.final = false, true })
}
