package process

import (
	"encoding/json"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
)

// port is what stands for a free port in what a test wants.
var port = regexp.MustCompile(`\b[1-9][0-9]{4}\b`)

// plain writes a launch with P for each free port.
func plain(l *Launch) string {
	text := strings.Join(l.Env, " ") + "|" + strings.Join(l.Words, " ") + "|" + strings.Join([]string{l.URL, l.Events, l.Replay}, " ")
	return port.ReplaceAllString(text, "P")
}

func TestPlan(t *testing.T) {
	const (
		events = ` --kv-events-config {"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://127.0.0.1:P","replay_endpoint":"tcp://127.0.0.1:P"}`
		nixl   = ` --kv-transfer-config {"kv_connector":"NixlConnector","kv_role":"kv_both"}`
		here   = "http://127.0.0.1:P tcp://127.0.0.1:P tcp://127.0.0.1:P"
		none   = "http://127.0.0.1:P  "
	)
	vllm := func(command string) cluster.External { return cluster.External{Command: command} }
	for name, tc := range map[string]struct {
		need   Need
		want   string
		listen bool
	}{
		"vllm": {Need{Backend: "vllm", Role: "decode", Server: vllm("vllm serve m")},
			"VLLM_NIXL_SIDE_CHANNEL_PORT=P VLLM_NIXL_SIDE_CHANNEL_HOST=127.0.0.1|vllm serve m --host 127.0.0.1 --port P --enable-prompt-tokens-details" + nixl + events + "|" + here, true},
		"vllm, reached by others": {Need{Backend: "vllm", Role: "decode", Host: "10.0.0.5", Server: cluster.External{Command: "v", Env: "A=1\n\nB=2", Events: "off"}},
			"A=1 B=2 VLLM_NIXL_SIDE_CHANNEL_PORT=P VLLM_NIXL_SIDE_CHANNEL_HOST=10.0.0.5|v --host 127.0.0.1 --port P --enable-prompt-tokens-details" + nixl + "|" + none, false},
		"vllm, all given": {Need{Backend: "vllm", Role: "decode", Server: cluster.External{Env: "VLLM_NIXL_SIDE_CHANNEL_PORT=5600\nVLLM_NIXL_SIDE_CHANNEL_HOST=h", Host: "other",
			Command: `v --port=23456 --host 0.0.0.0 --no-enable-prompt-tokens-details --kv_transfer_config '{"x":1}' --kv-events-config '{"enable_kv_cache_events":true,"endpoint":"tcp://*:5557","replay_endpoint":"tcp://*:5558"}'`}},
			`VLLM_NIXL_SIDE_CHANNEL_PORT=5600 VLLM_NIXL_SIDE_CHANNEL_HOST=h|v --port=P --host 0.0.0.0 --no-enable-prompt-tokens-details --kv_transfer_config {"x":1} --kv-events-config {"enable_kv_cache_events":true,"endpoint":"tcp://*:5557","replay_endpoint":"tcp://*:5558"} --port P|http://127.0.0.1:P tcp://127.0.0.1:5557 tcp://127.0.0.1:5558`, false},
		"vllm, events connect": {Need{Backend: "vllm", Server: cluster.External{Connector: "none", Command: `v --kv-events-config='{"endpoint":"tcp://10.1.1.1:5557"}'`}},
			`|v --kv-events-config={"endpoint":"tcp://10.1.1.1:5557"} --host 127.0.0.1 --port P --enable-prompt-tokens-details|http://127.0.0.1:P tcp://10.1.1.1:5557 `, true},
		"vllm, events off": {Need{Backend: "vllm", Server: cluster.External{Connector: "none", Command: `v --kv-events-config='{"enable_kv_cache_events":false}'`}},
			`|v --kv-events-config={"enable_kv_cache_events":false} --host 127.0.0.1 --port P --enable-prompt-tokens-details|` + none, false},
		"vllm, events at an address": {Need{Backend: "vllm", Server: cluster.External{Connector: "none", Command: "v", Events: "tcp://10.1.1.1:5557", Replay: "tcp://10.1.1.1:5558"}},
			`|v --host 127.0.0.1 --port P --enable-prompt-tokens-details --kv-events-config {"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://*:5557","replay_endpoint":"tcp://*:5558"}|http://127.0.0.1:P tcp://10.1.1.1:5557 tcp://10.1.1.1:5558`, false},
		"vllm, events to us": {Need{Backend: "vllm", Server: cluster.External{Connector: "none", Command: "v", Events: "tcp://*:5557"}},
			`|v --host 127.0.0.1 --port P --enable-prompt-tokens-details --kv-events-config {"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://127.0.0.1:5557"}|http://127.0.0.1:P tcp://127.0.0.1:5557 `, true},
		"vllm, mooncake prefill": {Need{Backend: "vllm", Role: "prefill", Server: cluster.External{Connector: "mooncake", Command: "v", Events: "off"}},
			`VLLM_MOONCAKE_BOOTSTRAP_PORT=P|v --host 127.0.0.1 --port P --enable-prompt-tokens-details --kv-transfer-config {"kv_connector":"MooncakeConnector","kv_role":"kv_producer"}|` + none, false},
		"vllm, mooncake decode": {Need{Backend: "vllm", Role: "decode", Server: cluster.External{Connector: "mooncake", Command: "v", Events: "off"}},
			`|v --host 127.0.0.1 --port P --enable-prompt-tokens-details --kv-transfer-config {"kv_connector":"MooncakeConnector","kv_role":"kv_consumer"}|` + none, false},
		"vllm, to sleep": {Need{Backend: "vllm", Role: "decode", Server: cluster.External{Connector: "none", Command: "v --enable-sleep-mode", Events: "off", Sleep: true}},
			"VLLM_SERVER_DEV_MODE=1|v --enable-sleep-mode --host 127.0.0.1 --port P --enable-prompt-tokens-details|" + none, false},
		"vllm, encode": {Need{Backend: "vllm", Role: "encode", Server: vllm("v --ec-transfer-config {}")},
			"|v --ec-transfer-config {} --host 127.0.0.1 --port P --enable-prompt-tokens-details --mm-encoder-only --no-enable-prefix-caching|" + none, false},
		"vllm, encode, told": {Need{Backend: "vllm", Role: "encode", Server: cluster.External{Connector: "mooncake", Command: "v --enable-prefix-caching --mm-encoder-only", Events: "tcp://*:5557"}},
			"|v --enable-prefix-caching --mm-encoder-only --host 127.0.0.1 --port P --enable-prompt-tokens-details|" + none, false},
		"sglang, to sleep": {Need{Backend: "sglang", Role: "decode", Server: cluster.External{Connector: "none", Command: "s", Events: "off", Sleep: true}},
			"|s --host 127.0.0.1 --port P --enable-metrics --enable-memory-saver --enable-weights-cpu-backup|" + none, false},
		"sglang prefill": {Need{Backend: "sglang", Role: "prefill", Server: cluster.External{Command: "s", Events: "off"}},
			"|s --host 127.0.0.1 --port P --enable-metrics --disaggregation-mode prefill --disaggregation-bootstrap-port P|" + none, false},
		"sglang decode": {Need{Backend: "sglang", Role: "decode", Server: cluster.External{Command: "s --dp 4"}},
			"|s --dp 4 --host 127.0.0.1 --port P --enable-metrics --disaggregation-mode decode" + events + "|" + here, true},
		"sglang alone": {Need{Backend: "sglang", Role: "decode", Server: cluster.External{Command: "s", Connector: "none", Events: "off"}}, "|s --host 127.0.0.1 --port P --enable-metrics|" + none, false},
		"trtllm":       {Need{Backend: "trtllm", Role: "decode", Server: cluster.External{Command: "trtllm-serve m --config c.yaml"}}, "|trtllm-serve m --config c.yaml --port P|" + none, false},
		"llama.cpp":    {Need{Backend: "openai", Server: cluster.External{Command: "llama-server -m m.gguf"}}, "|llama-server -m m.gguf --port P|" + none, false},
		"ollama":       {Need{Backend: "openai", Server: cluster.External{Command: "/usr/bin/ollama serve"}}, "OLLAMA_HOST=127.0.0.1:P|/usr/bin/ollama serve|" + none, false},
		"ollama, told": {Need{Backend: "openai", Server: cluster.External{Command: "ollama serve", Env: "OLLAMA_HOST=127.0.0.1:11434"}}, "OLLAMA_HOST=127.0.0.1:P|ollama serve|" + none, false},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := Plan(tc.need)
			if err != nil {
				t.Fatal(err)
			}
			want := strings.Replace(tc.want, " --port P|http", "|http", strings.Count(tc.want, "--port=P"))
			if got := plain(&l); got != port.ReplaceAllString(want, "P") || l.Listen != tc.listen {
				t.Errorf("got  %s, listens %v\nwant %s", got, l.Listen, want)
			}
			if strings.Contains(name, "prefill") != (l.BootstrapPort != 0) {
				t.Errorf("the bootstrap port is %d", l.BootstrapPort)
			}
		})
	}
}

// Each rank has ports of its own, and no port is given twice.
func TestPlanRanks(t *testing.T) {
	l, err := Plan(Need{Backend: "vllm", Server: cluster.External{Command: "v -dp 8"}})
	if err != nil || l.Ranks != 8 {
		t.Fatalf("%d ranks, %v", l.Ranks, err)
	}
	seen := map[int]bool{}
	add := func(text string, n int) {
		first, err := strconv.Atoi(text[strings.LastIndexAny(text, ":=")+1:])
		if err != nil {
			t.Fatal(err)
		}
		for p := first; p < first+n; p++ {
			if seen[p] {
				t.Errorf("port %d is given twice", p)
			}
			seen[p] = true
		}
	}
	add(l.URL, 1)
	add(l.Events, 8)
	add(l.Replay, 8)
	add(l.Env[0], 8)
	at := slices.Index(l.Words, "--kv-events-config")
	var config published
	if err := json.Unmarshal([]byte(l.Words[at+1]), &config); err != nil || config.Endpoint != l.Events || config.Replay != l.Replay {
		t.Errorf("%+v, %v", config, err)
	}
}

func TestPlanErrors(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	taken := ln.Addr().(*net.TCPAddr).Port
	for says, need := range map[string]Need{
		"no server of its own":               {Backend: "cpu", Server: cluster.External{Command: "x"}},
		"command: the command is empty":      {Backend: "vllm"},
		"encodes nothing for others":         {Backend: "sglang", Role: "encode", Server: cluster.External{Command: "x"}},
		"port " + strconv.Itoa(taken):        {Backend: "vllm", Server: cluster.External{Command: "x", Port: taken}},
		"is not free":                        {Backend: "openai", Server: cluster.External{Command: "x --port " + strconv.Itoa(taken)}},
		"--port abc is no port":              {Backend: "openai", Server: cluster.External{Command: "x --port abc"}},
		"--port  is no port":                 {Backend: "openai", Server: cluster.External{Command: "x --port"}},
		"is 1234 there, and 1235":            {Backend: "openai", Server: cluster.External{Command: "x --port 1234", Port: 1235}},
		"data-parallel ranks":                {Backend: "vllm", Server: cluster.External{Command: "x --data-parallel-size many"}},
		`"0" data-parallel ranks`:            {Backend: "sglang", Server: cluster.External{Command: "x --dp-size=0"}},
		"command: --kv-events-config":        {Backend: "vllm", Server: cluster.External{Command: "x --kv-events-config {"}},
		"not of the form tcp://host:port":    {Backend: "vllm", Server: cluster.External{Command: `x --kv-events-config '{"endpoint":"ipc:///tmp/x"}'`}},
		"VLLM_MOONCAKE_BOOTSTRAP_PORT is":    {Backend: "vllm", Role: "prefill", Server: cluster.External{Command: "x", Connector: "mooncake", Env: "VLLM_MOONCAKE_BOOTSTRAP_PORT=a"}},
		"--disaggregation-bootstrap-port: p": {Backend: "sglang", Role: "prefill", Server: cluster.External{Command: "x", BootstrapPort: taken}},
	} {
		if l, err := Plan(need); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, %v, want %q", plain(&l), err, says)
		}
	}
}
