package dial

import (
	"os"
	"slices"

	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/statedir"
)

// Locate returns where a cluster's stores are: the configured store, else that of the cluster
// on this machine, of which the namespace and NATS are known, too. A configured directory
// may be that of other machines, and the one of this machine outlives the node that wrote
// where it is. The error is [statedir.ErrNotRunning] if nothing is known.
func Locate(etcd config.EtcdClient, d config.Discovery, local statedir.Cluster) (statedir.Endpoints, error) {
	if len(etcd.Endpoints) > 0 {
		return statedir.Endpoints{Etcd: etcd.Endpoints}, nil
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

// anyNode reports whether a node of the cluster runs on this machine.
func anyNode(local statedir.Cluster) bool {
	nodes, err := local.Nodes()
	return err == nil && slices.ContainsFunc(nodes, func(n statedir.Node) bool { _, held := n.Holder(); return held })
}
