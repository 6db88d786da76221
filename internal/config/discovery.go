package config

import (
	"cmp"
	"path/filepath"
	"strings"
)

// Backends of discovery, the values of [Discovery.Backend].
const (
	BackendEtcd = "etcd"
	BackendFile = "file"
	// backendKVStore is what other programs call etcd, as opposed to Kubernetes.
	backendKVStore = "kv_store"
)

// SchemeFile begins the address of a store that is a directory.
const SchemeFile = "file://"

// Discovery says what holds the cluster's shared state: who is there, leases, and what is
// wanted.
type Discovery struct {
	Backend string `mapstructure:"backend"`
	// Dir is the directory of the backend "file"; empty means one in the state directory.
	Dir string `mapstructure:"dir"`
}

// InFiles reports whether a directory holds the state.
func (d Discovery) InFiles() bool { return d.Backend == BackendFile }

// Elsewhere reports whether a directory is configured, which other machines may share.
func (d Discovery) Elsewhere() bool { return d.InFiles() && d.Dir != "" }

// Address returns the address of the store in files. The default directory is used where
// none is configured.
func (d Discovery) Address(standard string) (string, error) {
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

func discoveryKeys() []Key {
	return []Key{
		{
			Name: "discovery.backend", Kind: KindString, Default: BackendEtcd, Choices: []string{BackendEtcd, backendKVStore, BackendFile},
			Help:    "what holds the shared state of the cluster: etcd (also called kv_store), or the files of one directory, without a server",
			Aliases: []Alias{{Name: "DYN_DISCOVERY_BACKEND"}, {Name: "DYN_STORE_KV"}},
		},
		{
			Name: "discovery.dir", Kind: KindPath, Default: "",
			Help:    "directory of the backend file, on this machine or on a file system that all machines of the cluster share; empty means one in state_dir",
			Aliases: []Alias{{Name: "DYN_FILE_KV"}},
		},
	}
}

// discovery checks that the settings of one backend do not come with another.
func (v *validator) discovery(d Discovery, e EtcdClient) {
	switch {
	case d.InFiles() && len(e.Endpoints) > 0:
		v.wrong("etcd.endpoints", "is set, but discovery.backend is %s: choose one", BackendFile)
	case !d.InFiles() && d.Dir != "":
		v.wrong("discovery.dir", "is set, but discovery.backend is not %s", BackendFile)
	}
}
