package config_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/config"
)

func TestDiscovery(t *testing.T) {
	for _, tc := range []struct {
		environ []string
		backend string // etcd, file or nats
		wrong   string // part of the error, empty for none
	}{
		{nil, "etcd", ""},
		{[]string{"DYN_DISCOVERY_BACKEND=kv_store"}, "etcd", ""},
		{[]string{"DYN_DISCOVERY_BACKEND=etcd", "ETCD_ENDPOINTS=a:1"}, "etcd", ""},
		{[]string{"DYN_DISCOVERY_BACKEND=file"}, "file", ""},
		{[]string{"DYN_STORE_KV=file", "DYN_FILE_KV=/shared/store"}, "file", ""},
		{[]string{"DYN_STORE_KV=nats"}, "nats", ""},
		{[]string{"DYN_DISCOVERY_BACKEND=nats", "NATS_SERVER=nats://a:4222"}, "nats", ""},
		{[]string{"DYN_FILE_KV=/shared/store"}, "", "discovery.dir: is set, but discovery.backend is not file"},
		{[]string{"DYN_DISCOVERY_BACKEND=nats", "DYN_FILE_KV=/shared/store"}, "", "discovery.dir: is set, but discovery.backend is not file"},
		{[]string{"DYN_DISCOVERY_BACKEND=file", "ETCD_ENDPOINTS=a:1"}, "", "etcd.endpoints: is set, but discovery.backend is file"},
		{[]string{"DYN_DISCOVERY_BACKEND=nats", "ETCD_ENDPOINTS=a:1"}, "", "etcd.endpoints: is set, but discovery.backend is nats"},
		{[]string{"DYN_DISCOVERY_BACKEND=mem"}, "", "discovery.backend: mem keeps the state in the memory of one process"},
		{[]string{"DYN_DISCOVERY_BACKEND=zookeeper"}, "", "is not one of"},
	} {
		name := strings.Join(tc.environ, " ")
		agent, _, err := loadDynamod(t, nil, tc.environ, nil)
		if err == nil {
			err = agent.Validate()
		}
		ctl, _, cerr := config.LoadDynctl(input(t, config.DynctlTable(), nil, tc.environ, nil))
		if cerr == nil {
			cerr = ctl.Validate()
		}
		for _, err := range []error{err, cerr} {
			if (err == nil) != (tc.wrong == "") || err != nil && !strings.Contains(err.Error(), tc.wrong) {
				t.Errorf("%s: got %v, want %q", name, err, tc.wrong)
			}
		}
		if tc.wrong != "" {
			continue
		}
		for _, d := range []config.Discovery{agent.Discovery, ctl.Discovery} {
			if d.InFiles() != (tc.backend == "file") || d.InNATS() != (tc.backend == "nats") {
				t.Errorf("%s: %+v", name, d)
			}
		}
		if embeds := agent.EmbedsEtcd(); embeds != (tc.backend == "etcd" && len(agent.Etcd.Endpoints) == 0) {
			t.Errorf("%s: embeds etcd: %t", name, embeds)
		}
	}
}

func TestStoreAddress(t *testing.T) {
	standard := filepath.Join(t.TempDir(), "standard")
	for dir, want := range map[string]string{"": standard, "/shared/store": "/shared/store"} {
		addr, err := config.Discovery{Backend: "file", Dir: dir}.Address(standard)
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := config.StoreDir([]string{addr}); !ok || got != want {
			t.Errorf("%q: %q is the address of %q, want %q", dir, addr, got, want)
		}
	}
	for _, addrs := range [][]string{nil, {"a:1"}, {"file:///a", "b:1"}} {
		if dir, ok := config.StoreDir(addrs); ok {
			t.Errorf("%q is the directory %q", addrs, dir)
		}
	}
}

// The settings of an address have that address.
func TestDiscoveryAt(t *testing.T) {
	for _, tc := range []struct {
		addrs   []string
		backend string
		etcd    int
	}{
		{[]string{"file:///shared"}, "file", 0},
		{[]string{"bucket://mine"}, "nats", 0},
		{[]string{"kubernetes://"}, "kubernetes", 0},
		{[]string{"a:1", "b:1"}, "etcd", 2},
		{[]string{"bucket://mine", "b:1"}, "etcd", 2},
	} {
		d, etcd := config.DiscoveryAt(tc.addrs)
		if d.Backend != tc.backend || len(etcd) != tc.etcd {
			t.Errorf("%q: %+v, etcd %q", tc.addrs, d, etcd)
		}
		if addr, err := d.Address("none"); tc.etcd == 0 && (err != nil || addr != tc.addrs[0]) {
			t.Errorf("%q became %q, %v", tc.addrs, addr, err)
		}
	}
	d := config.Dynctl{Discovery: config.Discovery{Backend: "nats", Bucket: "a.b"}}
	if err := d.Validate(); err == nil || !strings.Contains(err.Error(), "discovery.bucket") {
		t.Errorf("a bucket a.b: %v", err)
	}
}
