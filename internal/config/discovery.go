package config

import (
	"cmp"
	"path/filepath"
	"regexp"
	"strings"
)

// Backends of discovery, the values of [Discovery.Backend].
const (
	BackendEtcd = "etcd"
	BackendFile = "file"
	BackendNATS = "nats"
	// BackendMem is for programs that are a cluster of their own, see package dynamo.
	BackendMem = "mem"
	// backendKVStore is what other programs call etcd, as opposed to Kubernetes.
	backendKVStore = "kv_store"
)

const (
	// SchemeFile begins the address of a store that is a directory.
	SchemeFile = "file://"
	// SchemeBucket begins the address of a store that is a bucket of the cluster's NATS.
	SchemeBucket = "bucket://"
)

// Discovery says what holds the cluster's shared state: who is there, leases, and what is
// wanted.
type Discovery struct {
	Backend string `mapstructure:"backend"`
	// Dir is the directory of the backend "file"; empty means one in the state directory.
	Dir string `mapstructure:"dir"`
	// Bucket is that of the backend "nats".
	Bucket string `mapstructure:"bucket"`
}

// InFiles reports whether a directory holds the state.
func (d Discovery) InFiles() bool { return d.Backend == BackendFile }

// InNATS reports whether the cluster's NATS holds the state.
func (d Discovery) InNATS() bool { return d.Backend == BackendNATS }

// Elsewhere reports whether a directory is configured, which other machines may share.
func (d Discovery) Elsewhere() bool { return d.InFiles() && d.Dir != "" }

// Address returns the address of a store that is not etcd. The default directory is used where
// none is configured.
func (d Discovery) Address(standard string) (string, error) {
	switch {
	case d.InNATS():
		return SchemeBucket + d.Bucket, nil
	case d.InKubernetes():
		return SchemeKubernetes, nil
	}
	dir, err := filepath.Abs(cmp.Or(d.Dir, standard))
	return SchemeFile + dir, err
}

// StoreDir returns the directory that addresses of a store name, if they do not name servers.
func StoreDir(addrs []string) (dir string, ok bool) {
	if len(addrs) != 1 {
		return "", false
	}
	return strings.CutPrefix(addrs[0], SchemeFile)
}

// StoreBucket returns the bucket that addresses of a store name, if they name one.
func StoreBucket(addrs []string) (bucket string, ok bool) {
	if len(addrs) != 1 {
		return "", false
	}
	return strings.CutPrefix(addrs[0], SchemeBucket)
}

// DiscoveryAt returns the settings that say that the store is at the addresses, and the
// addresses of etcd if it is that.
func DiscoveryAt(addrs []string) (d Discovery, etcd []string) {
	if dir, ok := StoreDir(addrs); ok {
		return Discovery{Backend: BackendFile, Dir: dir}, nil
	}
	if bucket, ok := StoreBucket(addrs); ok {
		return Discovery{Backend: BackendNATS, Bucket: bucket}, nil
	}
	if len(addrs) == 1 && strings.HasPrefix(addrs[0], SchemeKubernetes) {
		return Discovery{Backend: BackendKubernetes}, nil
	}
	return Discovery{Backend: BackendEtcd}, addrs
}

func discoveryKeys() []Key {
	return []Key{
		{
			Name: "discovery.backend", Kind: KindString, Default: BackendEtcd, Choices: []string{BackendEtcd, backendKVStore, BackendNATS, BackendFile, BackendKubernetes, BackendMem},
			Help:    "what holds the shared state of the cluster: etcd (also called kv_store), the NATS of the cluster, the files of one directory, without a server, or the Kubernetes API; mem, the memory of one program, is for programs of their own",
			Aliases: []Alias{{Name: "DYN_DISCOVERY_BACKEND"}, {Name: "DYN_STORE_KV"}},
		},
		{
			Name: "discovery.dir", Kind: KindPath, Default: "",
			Help:    "directory of the backend file, on this machine or on a file system that all machines of the cluster share; empty means one in state_dir",
			Aliases: []Alias{{Name: "DYN_FILE_KV"}},
		},
		{
			Name: "discovery.bucket", Kind: KindString, Default: "dynctl",
			Help: "key-value bucket of the backend nats; clusters that share a NATS need one each",
		},
	}
}

var bucketRule = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// discovery checks that the settings of one backend do not come with another.
func (v *validator) discovery(d Discovery, e EtcdClient) {
	switch {
	case d.Backend == BackendMem:
		v.wrong("discovery.backend", "mem keeps the state in the memory of one process, and the programs of a cluster are several: use %s on one machine, %s or %s on any number", BackendFile, BackendNATS, BackendEtcd)
	case (d.InFiles() || d.InNATS()) && len(e.Endpoints) > 0:
		v.wrong("etcd.endpoints", "is set, but discovery.backend is %s: choose one", d.Backend)
	case d.InNATS() && !bucketRule.MatchString(d.Bucket):
		v.wrong("discovery.bucket", "%q is not a name of up to 64 letters, digits, - and _", d.Bucket)
	case !d.InFiles() && d.Dir != "":
		v.wrong("discovery.dir", "is set, but discovery.backend is not %s", BackendFile)
	}
}
