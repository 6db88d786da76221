package client

import "testing"

// What holds the state is named by its address, wherever dynctl shows it.
func TestStoreKind(t *testing.T) {
	for addr, want := range map[string][2]string{
		"file:///d": {StoreFiles, "/d"}, "bucket://b": {StoreNATS, "b"}, "kubernetes://": {StoreKubernetes, ""}, "a:2379": {"", ""},
	} {
		kind, name := (&Cluster{addrs: []string{addr}}).StoreKind()
		if kind != want[0] || name != want[1] {
			t.Errorf("%s: %q %q, want %q", addr, kind, name, want)
		}
	}
}
