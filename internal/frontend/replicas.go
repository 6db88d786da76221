package frontend

import (
	"context"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/replicasync"
	"github.com/dynctl/dynctl/internal/router"
)

// Reasons why requests of other frontends are not counted.
const (
	offBySetting = "router.replica_sync is false"
	offWithout   = "there is no event plane"
)

// watchReplicas starts counting the requests of other frontends, unless it is off.
func (f *Frontend) watchReplicas(ctx context.Context) (err error) {
	switch {
	case f.cfg.NoReplicaSync:
		f.replicasOff = offBySetting
	case f.cfg.Runtime.Bus() == nil:
		f.replicasOff = offWithout
	default:
		f.replicas, err = replicasync.New(ctx, replicasync.Config{
			Runtime: f.cfg.Runtime, Metrics: f.cfg.Metrics, Log: f.log,
			Loads: map[cluster.Role]*router.Load{cluster.RoleDecode: f.load, cluster.RolePrefill: f.prefillLoad},
		})
		return err
	}
	f.log.Info("the router counts only the requests of this frontend", "reason", f.replicasOff)
	return nil
}

// replicaSync reports what the frontend knows of the requests of others.
func (f *Frontend) replicaSync() *cluster.ReplicaSync {
	if f.replicas == nil {
		return &cluster.ReplicaSync{Off: f.replicasOff}
	}
	return &cluster.ReplicaSync{Frontends: f.replicas.Frontends()}
}
