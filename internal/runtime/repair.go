package runtime

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/dynctl/dynctl/internal/store"
)

const (
	repairMin = 100 * time.Millisecond
	repairMax = 2 * time.Second
	// auditTTLs is the interval, in lease TTLs, at which the runtime checks that its keys
	// still exist. An operator may have deleted one or restored a backup. Without the
	// audit, such a worker would run without ever being found again.
	auditTTLs = 3
)

// repair grants a new lease if the old one is lost, and has the store agree with every
// record. It runs when a lease was lost or a record differs, again until the store agrees,
// and for audits.
func (d *DistributedRuntime) repair(context.Context) {
	d.mu.Lock()
	keeper := d.keeper
	d.mu.Unlock()
	select {
	case <-keeper.Lost():
		d.release(keeper)
	default:
	}
	interval := auditTTLs * d.cfg.LeaseTTL
	if time.Since(d.audited) >= interval {
		d.audited = time.Now()
		d.audit()
	}
	next := time.Until(d.audited.Add(interval))
	switch err := d.settleAll(); {
	case err == nil:
		d.backoff = 0
	default:
		d.backoff = min(max(2*d.backoff, repairMin), repairMax)
		next = min(next, d.backoff)
		if errors.Is(err, store.ErrLeaseNotFound) {
			d.checkLease()
		}
	}
	d.repairs.WakeIn(next)
}

// release replaces a lost lease, registers everything again and calls the OnRelease
// functions.
func (d *DistributedRuntime) release(lost *store.LeaseKeeper) {
	lost.Close()
	keeper := d.regrant()
	if keeper == nil {
		return
	}
	d.mu.Lock()
	d.keeper = keeper
	keeper.OnLost(d.repairs.Wake)
	close(d.renewal)
	d.renewal = make(chan struct{})
	tell := d.onRelease
	d.mu.Unlock()

	err := d.settleAll()
	d.log.Warn("registered again under a new lease", "old", lost.ID().String(), "lease", keeper.ID().String(), "complete", err == nil)
	for _, f := range tell {
		f(lost.ID(), keeper.ID())
	}
}

// regrant takes a new lease and retries until it succeeds. It returns nil when the
// runtime is closed first.
func (d *DistributedRuntime) regrant() *store.LeaseKeeper {
	for backoff := repairMin; ; backoff = min(2*backoff, repairMax) {
		keeper, err := d.cfg.Store.KeepLease(d.ctx, d.cfg.LeaseTTL, d.log)
		if err == nil {
			return keeper
		}
		if d.ctx.Err() != nil {
			return nil
		}
		d.log.Warn("no new lease yet", "err", err)
		select {
		case <-time.After(backoff):
		case <-d.ctx.Done():
			return nil
		}
	}
}

// settleAll settles every record and returns the first error. Without a lease or a store
// it stops at the first record.
func (d *DistributedRuntime) settleAll() error {
	var first error
	for _, r := range d.allRecords() {
		if err := r.settle(d.ctx); err != nil {
			if first == nil {
				first = err
			}
			if d.ctx.Err() != nil || errors.Is(err, store.ErrLeaseNotFound) || errors.Is(err, store.ErrUnavailable) {
				break
			}
		}
	}
	return first
}

// audit finds records whose key is gone although the lease lives.
func (d *DistributedRuntime) audit() {
	for _, r := range d.allRecords() {
		if err := r.verify(d.ctx); err != nil {
			return // the store does not answer; the next audit repeats the check
		}
	}
}

func (d *DistributedRuntime) allRecords() []*record {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Collect(maps.Keys(d.records))
}

// checkLease asks the keeper to check at once whether the lease is alive.
func (d *DistributedRuntime) checkLease() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.keeper.Check()
}
