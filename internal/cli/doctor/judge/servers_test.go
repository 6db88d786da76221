package judge

import (
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
)

// The mistakes that people make with servers of other engines, each with what to do.
func TestServers(t *testing.T) {
	pair := func(change func(p, d *cluster.WorkerStatus)) func() []cluster.WorkerStatus {
		return func() []cluster.WorkerStatus {
			p := cluster.WorkerStatus{Name: "worker-1", Role: cluster.RolePrefill, Model: "m", State: cluster.StateReady, Node: "node-1", ServerStatus: &cluster.ServerStatus{
				Backend: cluster.BackendVLLM, URL: "http://gpu-1:8001", Connector: "nixl", Pair: "vllm|nixl|0.10|m|auto", BlockSize: 16, MaxModelLen: 4096, Events: &cluster.ServerEvents{Endpoint: "tcp://gpu-1:5557", Publishers: 1},
			}}
			d := p
			server, events := *p.ServerStatus, *p.ServerStatus.Events
			server.URL, server.Events = "http://gpu-2:8001", &events
			d.Name, d.Role, d.ServerStatus = "worker-2", cluster.RoleDecode, &server
			change(&p, &d)
			return []cluster.WorkerStatus{p, d}
		}
	}
	failed := func(reason string) func(p, d *cluster.WorkerStatus) {
		return func(_, d *cluster.WorkerStatus) { d.ServerStatus, d.State, d.Reason = nil, cluster.StateFailed, reason }
	}
	for name, tc := range map[string]struct {
		all                func() []cluster.WorkerStatus
		status, found, fix string
	}{
		"nothing wrong": {pair(func(_, _ *cluster.WorkerStatus) {}), OK, "2 servers", ""},
		"no servers":    {func() []cluster.WorkerStatus { return nil }, Skip, "no worker", ""},
		"port closed":   {pair(failed("probe: connect: connection refused")), Fail, "worker-2 has no server of vllm: probe", "curl http://gpu-2:8001/health on node node-1"},
		"wrong key":     {pair(failed("the server answers 401 Unauthorized")), Fail, "401", "api_key_file"},
		"unknown CA":    {pair(failed("x509: certificate signed by unknown authority")), Fail, "x509", "ca_file"},
		"wrong name":    {pair(failed(`the server has the models ["a"], not "m"`)), Fail, `not "m"`, "dynctl logs worker-2"},
		"loading": {pair(func(_, d *cluster.WorkerStatus) {
			d.ServerStatus, d.State, d.Reason = nil, cluster.StateLoading, "server is not ready"
		}), Warn, "not ready", "dynctl logs worker-2"},
		"events off":    {pair(func(p, _ *cluster.WorkerStatus) { p.ServerStatus.Events = nil }), Warn, "worker-1: nobody follows", "--kv-events-config"},
		"events silent": {pair(func(_, d *cluster.WorkerStatus) { d.ServerStatus.Events.Publishers = 0 }), Fail, "worker-2: no KV events come from tcp://gpu-1:5557", "port open for node node-1"},
		"other events":  {pair(func(_, d *cluster.WorkerStatus) { d.ServerStatus.Events.Undecodable = 3 }), Fail, "3 messages", "kv_events: off"},
		"lost events":   {pair(func(_, d *cluster.WorkerStatus) { d.ServerStatus.Events.Gaps = 3 }), Warn, "3 losses", "replay_endpoint"},
		"no metrics":    {pair(func(_, d *cluster.WorkerStatus) { d.ServerStatus.NoLoad = "404" }), Warn, "does not tell its load: 404", "/metrics"},
		"no connector": {pair(func(p, _ *cluster.WorkerStatus) {
			p.ServerStatus.FirstLegs, p.ServerStatus.FailedLegs, p.ServerStatus.LegFailure = 2, 2, "no kv_transfer_params"
		}), Fail, "2 of 2 prompts for decode servers failed: no kv_transfer_params", "--kv-transfer-config"},
		"some fail":  {pair(func(p, _ *cluster.WorkerStatus) { p.ServerStatus.FirstLegs, p.ServerStatus.FailedLegs = 2, 1 }), Warn, "1 of 2", "--kv-transfer-config"},
		"stranded":   {pair(func(p, _ *cluster.WorkerStatus) { p.ServerStatus.FirstLegs, p.ServerStatus.StrandedLegs = 9, 1 }), Warn, "1 of 9", "busy"},
		"versions":   {pair(func(_, d *cluster.WorkerStatus) { d.ServerStatus.Pair = "vllm|nixl|0.11|m|auto" }), Fail, `worker-1 and worker-2 exchange no KV: "0.10" is not "0.11"`, "same version"},
		"connectors": {pair(func(_, d *cluster.WorkerStatus) { d.ServerStatus.Connector = "mooncake" }), Fail, "connectors nixl and mooncake", "same connector"},
		"alone":      {pair(func(_, d *cluster.WorkerStatus) { d.ServerStatus.Backend = cluster.BackendOpenAI }), Fail, "worker-1 has no decode server of vllm", "attach or start"},
		"localhost":  {pair(func(p, _ *cluster.WorkerStatus) { p.ServerStatus.SideChannel = "localhost" }), Fail, "fetch KV from localhost", "VLLM_NIXL_SIDE_CHANNEL_HOST=gpu-1"},
		"localhost on one machine": {pair(func(p, d *cluster.WorkerStatus) {
			p.ServerStatus.SideChannel, d.ServerStatus.URL = "127.0.0.1", "http://gpu-1:8002"
		}), OK, "", ""},
		"larger blocks": {pair(func(p, _ *cluster.WorkerStatus) { p.ServerStatus.BlockSize = 32 }), Fail, "KV blocks of 32 tokens", "--block-size"},
		"lengths":       {pair(func(p, _ *cluster.WorkerStatus) { p.ServerStatus.MaxModelLen = 2048 }), Warn, "2048 to 4096", "same context length"},
		"adapters of both": {pair(func(p, d *cluster.WorkerStatus) {
			p.ServerStatus.Adapters, d.ServerStatus.Adapters = []string{"a"}, []string{"a"}
		}), OK, "", ""},
		"adapter as model":   {pair(func(_, d *cluster.WorkerStatus) { d.ServerStatus.Adapters = []string{"a", "m"} }), Warn, "adapters of m are not served, because models have their names: m", "--lora-modules"},
		"adapter of prefill": {pair(func(p, _ *cluster.WorkerStatus) { p.ServerStatus.Adapters = []string{"a"} }), Warn, "no decode server has them: a", "load them there"},
		"adapter of decode":  {pair(func(_, d *cluster.WorkerStatus) { d.ServerStatus.Adapters = []string{"a"} }), Warn, "no prefill server of m has the adapters a", "load them there"},
		"adapter of two models": {pair(func(p, d *cluster.WorkerStatus) {
			p.Role, p.Model = cluster.RoleDecode, "n"
			p.ServerStatus.Adapters, d.ServerStatus.Adapters = []string{"a"}, []string{"a", "b"}
		}), Warn, "m, n have adapters with the same names, of which one each is served: a", "--lora-modules"},
		"odd adapters": {pair(func(p, _ *cluster.WorkerStatus) { p.ServerStatus.OddAdapters = 3 }), Warn, "worker-1: 3 adapters are not served", "short names"},
		"encodes": {pair(func(p, _ *cluster.WorkerStatus) {
			p.Role, p.ServerStatus.Events, p.ServerStatus.MaxModelLen, p.ServerStatus.Adapters, p.ServerStatus.Connector = cluster.RoleEncode, nil, 512, []string{"a"}, "none"
		}), OK, "2 servers", ""},
		"encodes for nobody": {pair(func(p, d *cluster.WorkerStatus) { p.Role, d.Model = cluster.RoleEncode, "n" }), Fail, "worker-1 encodes for nobody: m has no server with prompts", "a server that answers"},
		"encodes for another version": {pair(func(p, d *cluster.WorkerStatus) {
			p.Role, p.ServerStatus.Version, d.ServerStatus.Version = cluster.RoleEncode, "0.10", "0.11"
		}), Fail, "worker-1 encodes for nobody: it has vllm 0.10, worker-2 has vllm 0.11", "same version"},
		"encodes, started alone": {pair(func(p, _ *cluster.WorkerStatus) { p.Role, p.Name = cluster.RoleEncode, "worker-3" }), Warn, "worker-3 passes no embeddings: its command line has no --ec-transfer-config", "with their roles"},
		"encodes, started well":  {pair(func(p, _ *cluster.WorkerStatus) { p.Role, p.Name = cluster.RoleEncode, "worker-4" }), OK, "", ""},
		"nobody to meet":         {pair(func(p, d *cluster.WorkerStatus) { p.Role, d.ServerStatus.NeedsPrefill = cluster.RoleDecode, true }), Fail, "worker-2 computes no prompts", "prefill server"},
	} {
		v := client.View{Status: map[string]cluster.WorkerStatus{}, Assignments: map[string]cluster.Assignment{}}
		for _, st := range tc.all() {
			a := cluster.Assignment{Name: st.Name, Role: st.Role, Engine: cluster.EngineSpec{Backend: cluster.BackendVLLM}}
			a.Engine.Server.URL = map[string]string{"worker-1": "http://gpu-1:8001", "worker-2": "http://gpu-2:8001"}[st.Name]
			a.Engine.Server.Command = map[string]string{"worker-3": "vllm serve m --mm-encoder-only", "worker-4": "vllm serve m --ec_transfer_config={}"}[st.Name]
			v.Status[st.Name], v.Assignments[st.Name] = st, a
		}
		f := Servers(v)
		if f.Status != tc.status || !strings.Contains(f.Found, tc.found) || !strings.Contains(f.Fix, tc.fix) || (f.Fix == "") != (tc.fix == "") {
			t.Errorf("%s: %+v", name, f)
		}
	}
}
