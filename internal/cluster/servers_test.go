package cluster

import (
	"slices"
	"strings"
	"testing"
)

// Each way of describing servers that cannot work is refused, at the field that has to change.
func TestServersOfATopology(t *testing.T) {
	serve := External{Command: "vllm serve /m"}
	vllm := EngineSpec{Backend: BackendVLLM, Server: serve}
	with := func(change func(*Topology)) Topology {
		top := Topology{Model: ModelSpec{Name: "m"}, Prefill: 1, Decode: 2, Engine: vllm}
		change(&top)
		return top
	}
	for name, c := range map[string]struct {
		top  Topology
		want []string // how the problems begin
	}{
		"one prefill, two decode": {with(func(*Topology) {}), nil},
		"on GPUs, of two ranks":   {with(func(t *Topology) { t.Engine.Device, t.Engine.TensorParallel = "gpu", 2 }), nil},
		"a port for each role":    {with(func(t *Topology) { t.PrefillSpec.Engine.Server.Port = 1; t.DecodeSpec.Engine.Server.Port = 2 }), nil},
		"one running server":      {with(func(t *Topology) { t.Prefill, t.Decode, t.Engine.Server = 0, 1, External{URL: "http://a:1"} }), nil},
		"described, not used":     {with(func(t *Topology) { t.Prefill, t.Decode, t.Engine.Server = 0, 0, External{} }), nil},
		"two share one server":    {with(func(t *Topology) { t.Prefill, t.Engine.Server = 0, External{URL: "http://a:1"} }), []string{"server.url: 2 workers cannot share one server"}},
		"a device of one": {with(func(t *Topology) {
			t.Prefill, t.Decode, t.Engine.Server, t.Engine.Device = 0, 1, External{URL: "http://a:1"}, "gpu"
		}), []string{"server.url: a server that runs already has"}},
		"neither url nor command":  {with(func(t *Topology) { t.Engine.Server = External{} }), []string{"server.command: a worker of vllm needs"}},
		"both":                     {with(func(t *Topology) { t.Prefill, t.Decode = 0, 1; t.DecodeSpec.Engine.Server.URL = "http://a:1" }), []string{"server.command: a server that has a url runs already"}},
		"openai prefills":          {with(func(t *Topology) { t.Engine.Backend = BackendOpenAI }), []string{"backend: servers of openai exchange no KV blocks"}},
		"openai decodes":           {with(func(t *Topology) { t.Prefill, t.Engine.Backend = 0, BackendOpenAI }), nil},
		"blocks":                   {with(func(t *Topology) { t.Engine.KVBlocks = 5 }), []string{"kv_blocks: a server of vllm has its own option"}},
		"sequences of a role":      {with(func(t *Topology) { t.DecodeSpec.Engine.MaxSeqs = 5 }), []string{"decode.max_num_seqs: a server of vllm"}},
		"speculation":              {with(func(t *Topology) { t.DecodeSpec.Engine.Speculative = Speculative{Method: "ngram", Tokens: 3} }), []string{"decode.speculative: a server of vllm"}},
		"quantized":                {with(func(t *Topology) { t.Model.Quantize = "q8_0" }), []string{"quantize: a server of vllm loads"}},
		"quantized for a role":     {with(func(t *Topology) { t.PrefillSpec.Quantize = "q8_0" }), []string{"prefill.quantize: a server of vllm loads"}},
		"encode workers of vllm":   {with(func(t *Topology) { t.Encode = 1 }), nil},
		"their connector":          {with(func(t *Topology) { t.Encode, t.EncodeSpec.Engine.Server.Connector = 1, "nixl" }), []string{"encode.server.connector: encode workers exchange no KV"}},
		"no connector of theirs":   {with(func(t *Topology) { t.Encode, t.EncodeSpec.Engine.Server.Connector = 1, "none" }), nil},
		"encode, with a folder":    {with(func(t *Topology) { t.Encode, t.Model.Path = 1, "/m" }), []string{"model: servers of vllm encode what is in clients' own requests"}},
		"encode workers of sglang": {with(func(t *Topology) { t.Encode, t.Engine.Backend = 1, BackendSGLang }), []string{"backend: no server of sglang computes the embeddings"}},
		"encode of another engine": {with(func(t *Topology) { t.Encode, t.EncodeSpec.Engine.Backend = 1, BackendSGLang }), []string{"encode.backend: encode workers of sglang give no embeddings to workers of vllm"}},
		"our own encode":           {with(func(t *Topology) { t.Encode, t.EncodeSpec.Engine.Backend = 1, BackendCPU }), []string{"encode.backend: encode workers of our own engine give no embeddings to workers of vllm"}},
		"encode for our own": {with(func(t *Topology) {
			t.Prefill, t.Encode, t.Engine, t.EncodeSpec.Engine, t.Model.Path = 0, 1, EngineSpec{}, vllm, "/m"
		}), []string{"encode.backend: encode workers of vllm give no embeddings to workers of our own engine"}},
		"decode is our own":        {with(func(t *Topology) { t.Engine = EngineSpec{}; t.PrefillSpec.Engine = vllm }), []string{"prefill.backend: workers of vllm and of our own engine"}},
		"prefill is our own":       {with(func(t *Topology) { t.Engine = EngineSpec{}; t.DecodeSpec.Engine = vllm }), []string{"decode.backend: workers of our own engine and of vllm"}},
		"two engines":              {with(func(t *Topology) { t.DecodeSpec.Engine.Backend = BackendSGLang }), []string{"decode.backend: workers of vllm and of sglang"}},
		"the default connector":    {with(func(t *Topology) { t.DecodeSpec.Engine.Server.Connector = "nixl" }), nil},
		"two connectors":           {with(func(t *Topology) { t.DecodeSpec.Engine.Server.Connector = "mooncake" }), []string{"decode.server.connector: prefill and decode workers exchange KV blocks by the same"}},
		"no connector":             {with(func(t *Topology) { t.Engine.Server.Connector = "none" }), []string{"decode.server.connector: prefill workers without a connector"}},
		"no connector, no prefill": {with(func(t *Topology) { t.Prefill, t.Engine.Server.Connector = 0, "none" }), nil},
		"two pairs":                {with(func(t *Topology) { t.PrefillSpec.Engine.Server.Pair = "a" }), []string{"prefill.server.pair: "}},
		"a server of our own":      {with(func(t *Topology) { t.Engine.Backend = "" }), []string{"backend: a server is described"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := c.top.Problems()
			for i := range max(len(got), len(c.want)) {
				if i >= len(got) || i >= len(c.want) || !strings.HasPrefix(got[i].Error(), c.want[i]) {
					t.Fatalf("problems %v, want %v", got, c.want)
				}
			}
		})
	}
}

// A topology holds no secret, and no message repeats one.
func TestSecretsOfServers(t *testing.T) {
	const hidden = "sk-123"
	for text, want := range map[string]bool{
		"vllm serve --api-key " + hidden: true, "vllm serve --api-key=" + hidden: true, "vllm '--api-key' " + hidden: true, "server --hf-token " + hidden: true, "env HF_TOKEN=" + hidden + " x": true,
		"llama-server --api-key-file /k": false, "x --tokenizer /m --max-num-batched-tokens 5": false, "x --ssl-keyfile /k": false, "x --ssl-keyfile-password " + hidden: true, "x MONEY=1": false, "x --time-to-first-token 40ms": false, "x --first-token " + hidden: false, "x --my-first-key " + hidden: true,
	} {
		e := EngineSpec{Backend: BackendOpenAI, Server: External{Command: text}}
		err := e.Validate()
		if (err != nil) != want || err != nil && (strings.Contains(err.Error(), hidden) || !strings.HasPrefix(err.Error(), "server.command: ")) {
			t.Errorf("%s: %v", text, err)
		}
	}
	for name, want := range map[string]bool{
		"HF_TOKEN": true, "VLLM_API_KEY": true, "AWS_SECRET_ACCESS_KEY": true, "PASSWORD": true, "DB_PASSWORD_2": true, "KEY": true, "MY_TOKEN_1": true, "CREDENTIALS": true, "API_KEY2": true,
		"HF_TOKEN_PATH": false, "TOKENIZERS_PARALLELISM": false, "MAX_TOKENS": false, "SSL_KEYFILE": false, "API_KEY_FILE": false, "CUDA_VISIBLE_DEVICES": false, "PYTHONHASHSEED": false,
	} {
		e := EngineSpec{Backend: BackendVLLM, Server: External{Command: "x", Env: name + "=" + hidden}}
		err := e.Validate()
		if (err != nil) != want || err != nil && strings.Contains(err.Error(), hidden) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestEnvironmentOfServers(t *testing.T) {
	for env, want := range map[string]string{"A=1": "", "A=": "", "A=1\nB=a=b": "", "A": "form NAME=value", "=1": "form NAME=value", "1A=2": "form NAME=value", "B=1\nA=2": "A does not come after B", "A=1\nA=1": "A does not come after A", "A=1\n": "form NAME=value"} {
		err := EngineSpec{Backend: BackendVLLM, Server: External{Command: "x", Env: env}}.Validate()
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", env, err)
		}
	}
	var x External
	x.SetEnvironment([]string{"B=2", "A_=1", "A=0"})
	if got := x.Environment(); x.Env != "A=0\nA_=1\nB=2" || !slices.Equal(got, []string{"A=0", "A_=1", "B=2"}) || (External{}).Environment() != nil {
		t.Errorf("%q", got)
	}
}
