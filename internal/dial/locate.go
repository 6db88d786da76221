package dial

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/statedir"
)

// Locate returns where a cluster's stores are: the configured store, else that of the cluster
// on this machine, of which the namespace and NATS are known, too. A configured directory
// may be that of other machines, and the one of this machine outlives the node that wrote
// where it is. The error is [statedir.ErrNotRunning] if nothing is known.
func Locate(etcd config.EtcdClient, d config.Discovery, nats config.NATSClient, local statedir.Cluster) (statedir.Endpoints, error) {
	if len(etcd.Endpoints) > 0 {
		return statedir.Endpoints{Etcd: etcd.Endpoints}, nil
	}
	if d.InNATS() && nats.URL != "" {
		return statedir.Endpoints{Etcd: []string{config.SchemeBucket + d.Bucket}, NATS: nats.URL}, nil
	}
	if d.InKubernetes() {
		return statedir.Endpoints{Etcd: []string{config.SchemeKubernetes}}, nil
	}
	e, err := local.Endpoints()
	if !d.Elsewhere() && (!d.InFiles() || err == nil || !anyNode(local)) {
		return e, err
	}
	addr, aerr := d.Address(local.StoreDir())
	if aerr == nil {
		dir, _ := config.StoreDir([]string{addr})
		_, aerr = os.Stat(dir)
	}
	if aerr != nil {
		return statedir.Endpoints{}, aerr
	}
	if err != nil || !slices.Equal(e.Etcd, []string{addr}) {
		return statedir.Endpoints{Etcd: []string{addr}}, nil
	}
	return e, nil
}

// Remember completes the settings of a cluster whose stores are on this machine: what held its
// state holds it, unless something is chosen. To choose something else is an error, because the
// cluster would begin with an empty state beside its own.
func Remember(d *config.Discovery, chosen bool, local statedir.Cluster) error {
	was, ok, err := local.Backend()
	if err != nil || !ok {
		return err
	}
	if !chosen {
		*d = config.Discovery{Backend: was.Name, Dir: was.Dir, Bucket: cmp.Or(was.Bucket, d.Bucket)}
		if was.Dir == local.StoreDir() {
			d.Dir = ""
		}
		return nil
	}
	now, err := BackendOf(*d, local)
	if err != nil || now == was {
		return err
	}
	return fmt.Errorf("%s holds the state of cluster %s on this machine, and discovery.backend is %s: leave the setting out, choose another --cluster, or delete that state with dynctl down --purge",
		was, local.Name, now)
}

// BackendOf says what the settings have hold the state.
func BackendOf(d config.Discovery, local statedir.Cluster) (statedir.Backend, error) {
	switch {
	case d.InNATS():
		return statedir.Backend{Name: d.Backend, Bucket: d.Bucket}, nil
	case d.InFiles():
		dir, err := filepath.Abs(cmp.Or(d.Dir, local.StoreDir()))
		return statedir.Backend{Name: d.Backend, Dir: dir}, err
	}
	return statedir.Backend{Name: config.BackendEtcd}, nil
}

// anyNode reports whether a node of the cluster runs on this machine.
func anyNode(local statedir.Cluster) bool {
	nodes, err := local.Nodes()
	return err == nil && slices.ContainsFunc(nodes, func(n statedir.Node) bool { _, held := n.Holder(); return held })
}
