package store

import (
	"context"
	"strings"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/kube"
)

const (
	// checkMin and checkMax limit the interval at which a process looks for leases that
	// nobody renews. In between it is an eighth of the shortest TTL.
	checkMin, checkMax = 50 * time.Millisecond, 5 * time.Second
	// cleanAtOnce limits what is removed in one interval.
	cleanAtOnce = 16
	// tellEvery is the default interval at which missing instances are explained.
	tellEvery = 10 * time.Second
)

// maintain ends leases that nobody renews, removes what they leave, and keeps the pod's
// document, until ctx ends.
func (k *Kubernetes) maintain(ctx context.Context) {
	select {
	case <-k.listed:
	case <-ctx.Done():
		return
	}
	told := time.Now()
	for {
		every := k.interval()
		timer := time.NewTimer(every)
		select {
		case <-timer.C:
		case <-k.sooner:
			timer.Stop()
		case <-ctx.Done():
			timer.Stop()
			return
		}
		k.prove(ctx, every)
		k.endOverdue(ctx)
		k.cleanOrphans(ctx)
		k.repairDocument(ctx)
		if time.Since(told) >= k.explains {
			told = time.Now()
			k.tellNone()
		}
	}
}

// interval returns the interval of checks. Time counts for leases only as far as the
// API server gives a sign of life in every interval.
func (k *Kubernetes) interval() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	every := min(checkMax, k.explains)
	for _, lease := range k.state.leases {
		every = min(every, lease.ttl/8)
	}
	k.setInterval(max(every, checkMin))
	return k.every
}

func (k *Kubernetes) setInterval(every time.Duration) {
	k.every, k.state.gap = every, every*5/4
}

// lookSooner shortens the interval for a new lease, for which the present one is too long.
func (k *Kubernetes) lookSooner(ttl time.Duration) {
	every := max(ttl/8, checkMin)
	if every >= k.every {
		return
	}
	k.setInterval(every)
	select {
	case k.sooner <- struct{}{}:
	default:
	}
}

// prove asks the API server for a sign of life if it has not given one lately.
func (k *Kubernetes) prove(ctx context.Context, every time.Duration) {
	k.mu.Lock()
	quiet := time.Since(k.proven) >= every
	k.mu.Unlock()
	if !quiet {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, monitorTimeout)
	defer cancel()
	if err := k.client.Probe(ctx, kube.Records); err != nil {
		k.fails(probed, err, time.Now().Add(every))
		return
	}
	k.answered(probed)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.failing[kube.Records] == nil {
		k.state.observe(time.Now())
	}
}

// probed stands for probes among the resources that are followed.
var probed = kube.Resource{Plural: "probe"}

// endOverdue ends the leases whose beats stood still for their TTL. Processes leave each
// other some time, so that not all of them try. A lease is deleted only in the version that
// is known here: if it was renewed after all, nothing happens but that the watch, which
// has missed it, begins anew.
func (k *Kubernetes) endOverdue(ctx context.Context) {
	type end struct {
		id           cluster.InstanceID
		uid, version string
	}
	var ends []end
	k.mu.Lock()
	for id, lease := range k.state.leases {
		r := k.leaseOf(id)
		patience := lease.ttl + time.Duration(k.late*float64(lease.ttl)/8)
		if r != nil && k.state.clock-lease.seen >= patience && len(ends) < cleanAtOnce {
			ends = append(ends, end{id, r.Metadata.UID, r.Metadata.ResourceVersion})
		}
	}
	k.mu.Unlock()
	for _, e := range ends {
		limited, cancel := context.WithTimeout(ctx, k.timeout)
		err := k.endLease(limited, e.id, e.uid, e.version)
		cancel()
		switch {
		case err == nil:
			k.log.Info("a lease has expired", "lease", e.id.String())
		case kube.IsConflict(err):
			k.restart()
		}
	}
}

// cleanOrphans removes keys whose lease has ended long ago: for one to two of the least TTL they
// are left to whoever ended it, and to Kubernetes.
func (k *Kubernetes) cleanOrphans(ctx context.Context) {
	var old []*kube.Record
	k.mu.Lock()
	patience := k.minTTL + time.Duration(k.late*float64(k.minTTL))
	for name, since := range k.orphaned {
		if r := k.records[name]; r != nil && k.state.clock-since >= patience && len(old) < cleanAtOnce {
			old = append(old, r)
		}
	}
	k.mu.Unlock()
	for _, r := range old {
		limited, cancel := context.WithTimeout(ctx, k.timeout)
		_, err := k.client.Delete(limited, kube.Records, r.Metadata.Name, r.Metadata.UID, r.Metadata.ResourceVersion)
		cancel()
		if err != nil && !kube.IsNotFound(err) && !kube.IsConflict(err) {
			return // the next interval tries again
		}
	}
}

// tellNone explains once why somebody who waits for instances sees none.
func (k *Kubernetes) tellNone() {
	k.mu.Lock()
	defer k.mu.Unlock()
	var reasons []string
	for _, prefix := range k.state.watchers {
		if _, card := strings.CutPrefix(prefix, "v1/mdc/"); !card && kube.Held(prefix) && prefix != "" && prefix != "/" {
			if why := k.whyNone(prefix); why != "" {
				reasons = append(reasons, prefix+": "+why)
			}
		}
	}
	told := strings.Join(reasons, " | ")
	if told != "" && told != k.told {
		k.log.Warn("no instance is known", "why", told)
	}
	k.told = told
}
