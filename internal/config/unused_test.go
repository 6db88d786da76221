package config

import (
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"
)

func noFile(string) ([]byte, error) { return nil, fs.ErrNotExist }

// Who sets a variable that only Dynamo's router has is told so, with the reason; variables
// that are read, and those of a program without a router, cause no warning.
func TestUnusedVariables(t *testing.T) {
	for _, tc := range []struct {
		variable string
		want     string // the warning; empty for none
	}{
		{"DYN_ROUTER_TEMPERATURE=0.5", "DYN_ROUTER_TEMPERATURE is not used: policy kv has no weights to tune"},
		{"DYN_KV_OVERLAP_SCORE_WEIGHT=2", "DYN_KV_OVERLAP_SCORE_WEIGHT is not used: policy kv has no weights to tune"},
		{"DYN_USE_REMOTE_INDEXER=true", "DYN_USE_REMOTE_INDEXER is not used: each frontend indexes for itself"},
		{"DYN_ROUTER_REPLICA_SYNC=false", ""},
		{"DYN_ROUTER_OF_TOMORROW=1", "DYN_ROUTER_OF_TOMORROW is not used: dynamod has no such setting"},
		{"DYN_KEY_VALUE_STORE=mem", "DYN_KEY_VALUE_STORE=mem is not supported: discovery.backend says where workers are found"},
		{"DYN_DISCOVERY_BACKEND=etcd", ""},
		{"DYN_REQUEST_PLANE=http", ""},
		{"DYN_EVENT_PLANE=NATS", ""},
		{"DYN_HTTP_RPC_PORT=8888", "DYN_HTTP_RPC_PORT is not used: request_plane.listen says where requests are served, at /v1/rpc over HTTP"},
		{"ENCODE_ENDPOINT=dyn://dynamo.encode.generate", ""},
		{"DYN_HEALTH_CHECK_PAYLOAD={}", "DYN_HEALTH_CHECK_PAYLOAD is not used: health_check.enabled probes workers with one token of their model"},
		{"DYN_SYSTEM_STARTING_HEALTH_STATUS=ready", "DYN_SYSTEM_STARTING_HEALTH_STATUS is not used: a node is ready once it has joined; a worker is registered when it can answer"},
		{"DYN_SYSTEM_USE_ENDPOINT_HEALTH_STATUS=[]", "DYN_SYSTEM_USE_ENDPOINT_HEALTH_STATUS is not used: /health counts every endpoint of the node's workers"},
		{"DYN_SYSTEM_LIVE_PATH=/alive", "DYN_SYSTEM_LIVE_PATH is not used: the status server answers at /health and /live"},
		{"DYN_HEALTH_CHECK_ENABLED=false", ""},
		{"DYN_COMPONENT=backend", "DYN_COMPONENT is not used: workers are registered by the names of their roles"},
		{"DYN_RUNTIME_NUM_WORKER_THREADS=4", "DYN_RUNTIME_NUM_WORKER_THREADS is not used: cpu.cores and GOMAXPROCS say how many threads compute"},
		{"DYN_TCP_POOL_SIZE=4", "DYN_TCP_POOL_SIZE is not used: connections of the request plane and their buffers have fixed limits"},
		{"DYN_LORA_ENABLED=true", "DYN_LORA_ENABLED is not used: the built-in engine has no adapters (LoRA), and servers of other engines tell theirs"},
		{"DYN_ROUTER_TEMPERATURE=", ""},
		{"DYN_ROUTER_MODE=kv", ""},
		{"DYN_ROUTER_TTL_SECS=60", ""},
		{"DYN_SOMETHING=1", ""},
	} {
		cfg, origins, err := LoadDynamod(Input{Environ: []string{tc.variable}, ReadFile: noFile})
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(origins.Warnings(), "\n"); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.variable, got, tc.want)
		}
		if off := strings.Contains(tc.variable, "REPLICA"); cfg.Router.ReplicaSync == off {
			t.Errorf("%s: replica sync %v", tc.variable, cfg.Router.ReplicaSync)
		}
		if strings.Contains(tc.variable, "TTL") && cfg.Router.KVTTL.Seconds() != 60 {
			t.Errorf("%s: %s", tc.variable, cfg.Router.KVTTL)
		}
		if _, origins, err := LoadDynctl(Input{Environ: []string{tc.variable}, ReadFile: noFile}); err != nil || len(origins.Warnings()) > 0 {
			t.Errorf("dynctl with %s: %v %v", tc.variable, origins, err)
		}
	}
	seen := map[string]bool{}
	table := DynamodTable()
	for reason, names := range unused {
		for _, name := range names {
			if seen[name] || !strings.HasPrefix(name, "DYN_") && !slices.Contains([]string{"NATS_TLS_INSECURE", "OTEL_EXPORT_ENABLED"}, name) {
				t.Errorf("%s is listed twice, or is not Dynamo's", name)
			}
			seen[name] = true
			if k := slices.IndexFunc(table.Keys, func(k Key) bool {
				return slices.ContainsFunc(table.variables(k), func(v variable) bool { return v.Name == name })
			}); k >= 0 {
				t.Errorf("%s is not used (%s), and sets %s", name, reason, table.Keys[k].Name)
			}
		}
	}
}

// Every value of Dynamo's router mode starts dynamod, as Dynamo writes it.
func TestDynamosRouterModes(t *testing.T) {
	for value, want := range map[string]string{"round_robin": "round-robin", "round-robin": "round-robin", "random": "random", "kv": "kv", "direct": "direct", "least_loaded": "least-loaded", "power_of_two": "power-of-two"} {
		cfg, origins, err := LoadDynamod(Input{Environ: []string{"DYN_ROUTER_MODE=" + value, "HOME=/home/user"}, ReadFile: noFile})
		if err == nil {
			err = cfg.Validate()
		}
		if err != nil || cfg.Router.Policy != want || len(origins.Warnings()) > 0 {
			t.Errorf("%s: %q, %v, %v", value, cfg.Router.Policy, err, origins.Warnings())
		}
	}
	for name := range only {
		if !slices.ContainsFunc(slices.Collect(maps.Values(unused)), func(names []string) bool { return slices.Contains(names, name) }) {
			t.Errorf("%s has no reason", name)
		}
	}
}
