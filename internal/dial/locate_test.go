package dial

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/statedir"
)

// What held the state of a cluster holds it, and nothing else can be chosen.
func TestRemember(t *testing.T) {
	local, err := statedir.Open(t.TempDir(), "local")
	if err != nil {
		t.Fatal(err)
	}
	etcd := config.Discovery{Backend: "etcd", Bucket: "dynctl"}
	if d := etcd; Remember(&d, false, local) != nil || d != etcd {
		t.Errorf("a new cluster: %+v", d)
	}
	if err := os.MkdirAll(local.Path, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, was := range []config.Discovery{
		{Backend: "nats", Bucket: "mine"},
		{Backend: "file", Bucket: "dynctl"},
		{Backend: "file", Dir: "/shared", Bucket: "dynctl"},
		{Backend: "etcd", Bucket: "dynctl"},
	} {
		b, err := BackendOf(was, local)
		if err == nil {
			err = local.SetBackend(b)
		}
		if err != nil {
			t.Fatal(err)
		}
		d := etcd
		if err := Remember(&d, false, local); err != nil || d != was {
			t.Errorf("%+v: remembered as %+v, %v", was, d, err)
		}
		for _, chosen := range []config.Discovery{
			etcd, {Backend: "kv_store"}, {Backend: "nats", Bucket: "mine"}, {Backend: "nats", Bucket: "other"},
			{Backend: "file"}, {Backend: "file", Dir: local.StoreDir()}, {Backend: "file", Dir: "/shared"},
		} {
			now, err := BackendOf(chosen, local)
			if err != nil {
				t.Fatal(err)
			}
			d := chosen
			err = Remember(&d, true, local)
			if d != chosen || (err == nil) != (now == b) || err != nil && !strings.Contains(err.Error(), "dynctl down --purge") {
				t.Errorf("%+v where %+v was: %+v, %v", chosen, was, d, err)
			}
		}
	}
}

// Clusters of versions that did not keep what holds the state.
func TestRememberWithoutARecord(t *testing.T) {
	for path, want := range map[string]string{".store/store.log": "file", "node-1/etcd/member": "etcd"} {
		local, err := statedir.Open(t.TempDir(), "local")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Join(local.Path, path), 0o700); err != nil {
			t.Fatal(err)
		}
		d := config.Discovery{Backend: "nats", Bucket: "dynctl"}
		if err := Remember(&d, false, local); err != nil || d.Backend != want || d.Dir != "" {
			t.Errorf("%s: %+v, %v", path, d, err)
		}
	}
}

// A bucket is in the NATS that is configured, or in that of the cluster of this machine.
func TestLocateInNATS(t *testing.T) {
	local, err := statedir.Open(t.TempDir(), "local")
	if err != nil {
		t.Fatal(err)
	}
	d := config.Discovery{Backend: "nats", Bucket: "mine"}
	e, err := Locate(config.EtcdClient{}, d, config.NATSClient{URL: "nats://a:1,nats://b:1"}, local)
	if err != nil || len(e.Etcd) != 1 || e.Etcd[0] != "bucket://mine" || e.NATS != "nats://a:1,nats://b:1" {
		t.Errorf("with a URL: %+v, %v", e, err)
	}
	if got := Servers(e.Etcd, e.NATS); len(got) != 2 || got[1] != "nats://b:1" {
		t.Errorf("its servers: %q", got)
	}
	if _, err := Locate(config.EtcdClient{}, d, config.NATSClient{}, local); err == nil {
		t.Error("found without a URL where nothing runs")
	}
	if _, err := Store(Stores{}, e.Etcd, Identity{}, quiet); err == nil {
		t.Error("a bucket without a server")
	}
}
