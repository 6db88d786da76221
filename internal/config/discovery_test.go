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
		files   bool
		wrong   string // part of the error, empty for none
	}{
		{nil, false, ""},
		{[]string{"DYN_DISCOVERY_BACKEND=kv_store"}, false, ""},
		{[]string{"DYN_DISCOVERY_BACKEND=etcd", "ETCD_ENDPOINTS=a:1"}, false, ""},
		{[]string{"DYN_DISCOVERY_BACKEND=file"}, true, ""},
		{[]string{"DYN_STORE_KV=file", "DYN_FILE_KV=/shared/store"}, true, ""},
		{[]string{"DYN_FILE_KV=/shared/store"}, false, "discovery.dir: is set, but discovery.backend is not file"},
		{[]string{"DYN_DISCOVERY_BACKEND=file", "ETCD_ENDPOINTS=a:1"}, true, "etcd.endpoints: is set, but discovery.backend is file"},
		{[]string{"DYN_DISCOVERY_BACKEND=kubernetes"}, false, "is not one of"},
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
		if tc.wrong == "" && (agent.Discovery.InFiles() != tc.files || ctl.Discovery.InFiles() != tc.files) {
			t.Errorf("%s: files %t and %t", name, agent.Discovery.InFiles(), ctl.Discovery.InFiles())
		}
		if embeds := tc.wrong == "" && agent.EmbedsEtcd(); embeds != (tc.wrong == "" && !tc.files && len(agent.Etcd.Endpoints) == 0) {
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
