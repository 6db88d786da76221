package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/cli/clitest"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cluster"
)

// A server that runs already becomes one worker, which no scaling counts, and goes when it is
// detached.
func TestAttachServer(t *testing.T) {
	w := newWorld(t)
	w.agent(fakeConfig{})
	w.up(0, 2)
	r := w.ok("attach", "http://gpu-3:8001/", "--engine", "vllm", "--role", "prefill", "--model", "big", "--kv-events", "tcp://gpu-3:5557", "--node", "node-1")
	if !strings.HasPrefix(r.stdout, "worker-3 serves big as prefill worker for http://gpu-3:8001, after ") {
		t.Errorf("attached: %+v", r)
	}
	want := cluster.Attached{
		Model: cluster.ModelSpec{Name: "big"}, Role: cluster.RolePrefill, Node: "node-1",
		Engine: cluster.EngineSpec{Backend: cluster.BackendVLLM, Server: cluster.External{URL: "http://gpu-3:8001", Events: "tcp://gpu-3:5557"}},
	}
	if got := w.topology(); len(got.Attached) != 1 || got.Attached[0] != want || got.Reason != "dynctl attach" && !strings.HasPrefix(got.Reason, "dynctl attach ") {
		t.Errorf("declared %+v", got)
	}
	// Of a model that is served, it takes name and files; again it takes the place of itself.
	for range 2 {
		r = w.ok("attach", "http://gpu-4:8001", "--engine", "openai", "-o", "json", "--model", cluster.BuiltinModelName)
	}
	var res map[string]any
	if err := json.Unmarshal([]byte(r.stdout), &res); err != nil || res["worker"] != "worker-4" || res["role"] != "decode" || res["engine"] != "openai" || res["converged"] != true {
		t.Errorf("as JSON: %v %s", err, r.stdout)
	}
	clitest.Has(t, "scaled", w.ok("scale", "--decode", "3").stdout, "lab has 3 decode workers, 2 attached servers after ")
	clitest.Has(t, "ps", w.ok("ps").stdout, "worker-3\tprefill\tvllm gpu-3:8001\tready", "worker-4\tdecode\topenai gpu-4:8001\tready", "worker-5\tdecode\t")
	clitest.Has(t, "ps -o json", w.ok("ps", "-o", "json").stdout, `"engine": "vllm"`, `"server_url": "http://gpu-3:8001"`)
	clitest.Has(t, "adapters", w.ok("ps", "-o", "wide").stdout, "\tbig + sql, tuned\t", "\t"+cluster.BuiltinModelName+"\t")
	clitest.Has(t, "adapters", w.ok("explain", "worker", "worker-3").stdout, "adapters", "sql, tuned")
	clitest.Has(t, "topology", w.ok("get", "topology", "-o", "yaml").stdout, "attached:\n", "- url: http://gpu-3:8001\n", "kv_events: tcp://gpu-3:5557\n")
	clitest.Has(t, "completion", w.ok("__complete", "detach", "").stdout, "http://gpu-3:8001\tprefill big\n")
	clitest.Has(t, "completion of connectors", w.ok("__complete", "attach", "http://a:1", "--engine", "vllm", "--connector", "").stdout, "nixl\nmooncake\nnone\n")
	for args, want := range map[string]string{
		"http://a:1 --engine vllm --model m --kv-replay x":                  `server.kv_replay: "x" is not of the form tcp://host:port`,
		"http://a:1 --host b --model m":                                     "--host belongs to --engine",
		"http://a:1 --engine rocm --model m":                                `engine: "rocm" is not one of`,
		"http://a:1 --engine vllm":                                          "name the model that the server serves: --model",
		"http://a:1 --engine vllm --role cook --model m":                    "--role: unknown role",
		"http://a:1 --engine sglang --role encode --model m":                `no server of sglang computes the embeddings of images for others here`,
		"http://a:1 --engine vllm --role encode --model m --model-dir /tmp": `servers of vllm encode what is in clients' own requests`,
		"http://a:1 --engine vllm --role encode --model m --connector nixl": `encode workers exchange no KV blocks`,
		"a:1 --engine vllm --model m":                                       "server.url: not the address of a server",
		"x http://a:1 --engine vllm --model m":                              "--engine takes a URL alone",
		"http://a:1 --engine vllm --ready-url x":                            "--ready-url is for services",
		"http://a:1 --role decode --model m":                                "--role belongs to --engine",
	} {
		if r := w.run(append([]string{"attach"}, strings.Fields(args)...)...); r.code != exit.Usage || !strings.Contains(r.stderr, want) {
			t.Errorf("attach %s: %+v, want %s", args, r, want)
		}
	}
	if r := w.run("attach", "http://a:1", "--engine", "vllm", "--model", "m", "--node", "nowhere"); r.code != exit.Failed || !strings.Contains(r.stderr, "no such node") {
		t.Errorf("a node: %+v", r)
	}
	if r := w.run("set", "worker-3", "role=decode"); r.code != exit.Failed || !strings.Contains(r.stderr, "its server is attached as a prefill worker") {
		t.Errorf("role: %+v", r)
	}
	if r := w.ok("detach", "worker-3"); !strings.HasPrefix(r.stdout, "http://gpu-3:8001 has left the cluster after ") {
		t.Errorf("detached: %+v", r)
	}
	if r := w.run("detach", "worker-1"); r.code != exit.Failed || !strings.Contains(r.stderr, "no server is attached by that name\n  attached: http://gpu-4:8001") {
		t.Errorf("a worker of ours: %+v", r)
	}
	w.ok("detach", "http://gpu-4:8001")
	if got := w.topology(); got.Attached != nil || w.ok("ps", "-q").stdout != "worker-1\nworker-2\nworker-5\n" {
		t.Errorf("left: %+v", got)
	}
}

// What topology files can say of a server, flags can say, too.
func TestAttachServerFlags(t *testing.T) {
	w := newWorld(t)
	w.agent(fakeConfig{})
	w.up(0, 1)
	w.run("attach", "http://gpu-3:8001", "--engine", "vllm", "--model", "big", "--kv-events", "tcp://gpu-3:5557", "--kv-replay", "tcp://gpu-3:5558",
		"--served-model", "org/big", "--host", "10.0.0.3", "--bootstrap-port", "8999", "--connector", "mooncake", "--pair", "a", "--no-wait")
	want := cluster.External{
		URL: "http://gpu-3:8001", Events: "tcp://gpu-3:5557", Replay: "tcp://gpu-3:5558", Model: "org/big", Host: "10.0.0.3", BootstrapPort: 8999, Connector: "mooncake", Pair: "a",
	}
	if got := w.topology(); len(got.Attached) != 1 || got.Attached[0].Engine.Server != want {
		t.Errorf("declared %+v", got)
	}
}

// What keeps a server from serving is told, with what to try.
func TestAttachFails(t *testing.T) {
	w := newWorld(t)
	w.agent(fakeConfig{Fail: map[string]string{"worker-2": "connection refused"}})
	w.up(0, 1)
	r := w.run("attach", "http://gpu-3:8001", "--engine", "vllm", "--model", "big")
	if r.code != exit.Failed {
		t.Errorf("%+v", r)
	}
	clitest.Has(t, "error", r.stderr, "worker-2 did not start: connection refused", "try: dynctl detach http://gpu-3:8001", "dynctl logs worker-2", "curl http://gpu-3:8001/v1/models")
}

func TestScalePool(t *testing.T) {
	w := newWorld(t)
	w.agent(fakeConfig{})
	w.ok("up", "--decode", "1", "--prefill", "0", "--set", "pools.small.model.name=s", "--set", "pools.small.model.path=dynctl-tiny-vision", "--set", "pools.small.decode=1")
	if r := w.ok("scale", "--pool", "small", "--prefill", "1", "--decode", "2"); !strings.HasPrefix(r.stdout, "lab has 1 decode worker, pool small: 1 prefill + 2 decode workers after ") {
		t.Errorf("%+v", r)
	}
	if got := w.topology(); got.Decode != 1 || got.Pools["small"].Decode != 2 || got.Pools["small"].Prefill != 1 || got.Pools["small"].Model.Name != "s" {
		t.Errorf("%+v", got)
	}
	if r := w.run("scale", "--pool", "large", "--decode", "2"); r.code != exit.Failed || !strings.Contains(r.stderr, "pool large: there is no such pool\n  pools: small") {
		t.Errorf("%+v", r)
	}
	clitest.Has(t, "completion", w.ok("__complete", "scale", "--pool", "").stdout, "small\ts\n")
	if got := w.ok("ps", "-q").stdout; got != "worker-1\nworker-2\nworker-3\nworker-4\n" {
		t.Errorf("workers %q", got)
	}
	wide := w.ok("ps", "-o", "wide").stdout
	clitest.Has(t, "ps", wide, "POOL")
	for line := range strings.Lines(wide) {
		want := map[bool]string{true: "\t-\n", false: "\tsmall\n"}[strings.HasPrefix(line, "worker-1\t")]
		if strings.HasPrefix(line, "worker-") && !strings.HasSuffix(line, want) {
			t.Errorf("%q", line)
		}
	}
	w.ok("rollback", "--yes")
	if got := w.topology(); got.Pools["small"].Decode != 1 {
		t.Errorf("rolled back to %+v", got)
	}
}
