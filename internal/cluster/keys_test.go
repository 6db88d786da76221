package cluster

import (
	"strings"
	"testing"
)

func TestKeys(t *testing.T) {
	const id InstanceID = 0x694d98147d540001
	for _, tc := range []struct{ got, want string }{
		{InstanceKey("dynamo", "decode", "generate", id), "/services/dynamo/decode/generate/694d98147d540001"},
		{Instance{Namespace: "dynamo", Component: "decode", Endpoint: "generate", InstanceID: id}.Key(), "/services/dynamo/decode/generate/694d98147d540001"},
		{CardKey("dynamo", "decode", "generate", id), "v1/mdc/dynamo/decode/generate/694d98147d540001"},
		{TopologyKey("dynamo"), "/dynctl/dynamo/topology"},
		{AssignmentKey("dynamo", "worker-7"), "/dynctl/dynamo/workers/worker-7"},
		{StatusKey("dynamo", "worker-7"), "/dynctl/dynamo/status/worker-7"},
		{SecretKey("dynamo"), "/dynctl/dynamo/secret"},
		{SettingKey("dynamo", "disagg.x"), "/dynctl/dynamo/config/disagg.x"},
		{CordonKey("dynamo", "node-1-ab"), "/dynctl/dynamo/cordons/node-1-ab"},
		{NodeKey("node-1-ab"), "/dynctl/nodes/node-1-ab"},
		{ElectionPrefix("dynamo"), "/dynctl/leader/dynamo"},
		{NIXLMetadataKey("dynamo", "worker-7.ab"), "dynamo/nixl_metadata/worker-7.ab"},
	} {
		if tc.got != tc.want {
			t.Errorf("got %s, want %s", tc.got, tc.want)
		}
	}
}

// A watch on one thing never sees another whose name begins the same.
func TestPrefixes(t *testing.T) {
	for name, p := range map[string]string{
		"instances of a namespace": InstancePrefix("a", "", ""), "of a component": InstancePrefix("a", "decode", ""),
		"of an endpoint": InstancePrefix("a", "decode", "generate"), "endpoint without component": InstancePrefix("a", "", "generate"),
		"cards": CardPrefix("a"), "assignments": AssignmentPrefix("a"), "statuses": StatusPrefix("a"),
		"settings": SettingPrefix("a"), "nodes": NodePrefix, "cordons": CordonPrefix("a"), "metadata": NIXLMetadataPrefix("a"),
	} {
		if !strings.HasSuffix(p, "/") {
			t.Errorf("%s: %s does not end in a slash", name, p)
		}
	}
	generate := InstancePrefix("a", "decode", "generate")
	for _, key := range []string{
		InstanceKey("a", "decode", "generate2", 1), InstanceKey("a", "decode2", "generate", 1), InstanceKey("a2", "decode", "generate", 1),
	} {
		if strings.HasPrefix(key, generate) {
			t.Errorf("%s is below %s", key, generate)
		}
	}
	if key := InstanceKey("a", "decode", "generate", 1); !strings.HasPrefix(key, generate) {
		t.Errorf("%s is not below %s", key, generate)
	}
	// Nor does one namespace see another's.
	for _, pair := range [][2]string{
		{CardPrefix("a"), CardKey("ab", "decode", "generate", 1)}, {AssignmentPrefix("a"), AssignmentKey("ab", "worker-1")},
		{ElectionPrefix("a") + "/", ElectionPrefix("ab") + "/1"}, {NIXLMetadataPrefix("a"), NIXLMetadataKey("b.a", "x")},
	} {
		if strings.HasPrefix(pair[1], pair[0]) {
			t.Errorf("%s is below %s", pair[1], pair[0])
		}
	}
}

func TestValidateNamespace(t *testing.T) {
	for _, ok := range []string{"dynamo", "a", "team-1.prod_2", "0", "nodes2", "leader.x"} {
		if err := ValidateNamespace(ok); err != nil {
			t.Errorf("%q: %v", ok, err)
		}
	}
	// "nodes" and "leader" would put a namespace's keys among those of all.
	for _, bad := range []string{"", "A", "a/b", "a.", ".a", "a..b", "a b", "a*", "a>", "ä", "a\n", "nodes", "leader"} {
		if err := ValidateNamespace(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

func TestSplitKey(t *testing.T) {
	for key, want := range map[string][2]string{
		TopologyKey("a.b"): {"a.b", "topology"}, StatusKey("lab", "worker-1"): {"lab", "status/worker-1"}, HistoryKey("lab", 7): {"lab", "history/0000000000000007"},
		NodeKey("n1"): {}, ElectionPrefix("lab") + "/x": {}, CardPrefix("lab"): {}, "/dynctl/lab": {}, "": {},
	} {
		ns, rest, ok := SplitKey(key)
		if ok != (want != [2]string{}) || ok && (ns != want[0] || rest != want[1]) {
			t.Errorf("%s: %q %q %v, want %q", key, ns, rest, ok, want)
		}
	}
}
