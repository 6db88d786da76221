package externaltest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"

	"github.com/dynctl/dynctl/internal/cluster"
)

// vllmLength is max_model_len of a double of vLLM.
const vllmLength = 4096

// vllm adds what vLLM has, or llm-d-inference-sim.
func (d *Double) vllm(mux *http.ServeMux) {
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	d.get(mux, "/v1/models", d.models(vllmLength))
	if !d.o.Simulator {
		version := d.o.Version
		if version == "" {
			version = "0.12.0"
		}
		d.get(mux, "/version", func() any { return map[string]any{"version": version} })
	}
	mux.HandleFunc("GET /metrics", d.vllmMetrics)
	mux.HandleFunc("POST /v1/completions", d.compute(func(c *call) { d.vllmAnswer(c, shapeText) }))
	mux.HandleFunc("POST /v1/chat/completions", d.compute(func(c *call) { d.vllmAnswer(c, shapeChat) }))
	mux.HandleFunc("POST /inference/v1/generate", d.compute(d.vllmGenerate))
	d.vllmSleep(mux)
	if d.o.Connector == "mooncake" && d.o.Role == cluster.RolePrefill {
		boot := http.NewServeMux()
		d.get(boot, "/query", func() any {
			ranks := map[string]any{}
			for i := range d.o.Ranks {
				ranks[strconv.Itoa(i)] = map[string]any{"engine_id": d.rankName(i)}
			}
			return ranks
		})
		d.boot = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "" {
				d.fabric.note("the bootstrap server got the API key")
			}
			boot.ServeHTTP(w, r)
		}))
	}
}

func (d *Double) rankName(rank int) string { return d.engine + "-dp" + strconv.Itoa(rank) }

// BootstrapPort is the port of Mooncake's bootstrap server.
func (d *Double) BootstrapPort() int {
	_, port, _ := strings.Cut(strings.TrimPrefix(d.boot.URL, "http://"), ":")
	n, err := strconv.Atoi(port)
	if err != nil {
		panic(err)
	}
	return n
}

func (d *Double) vllmMetrics(w http.ResponseWriter, r *http.Request) {
	if d.o.NoMetrics {
		http.NotFound(w, r)
		return
	}
	usage, hits := "vllm:kv_cache_usage_perc", "vllm:prefix_cache"
	if d.o.OldMetrics {
		usage, hits = "vllm:gpu_cache_usage_perc", "vllm:gpu_prefix_cache"
	}
	_, _ = fmt.Fprint(w, "# HELP vllm:num_requests_running Number of requests.\n# TYPE vllm:num_requests_running gauge\n")
	for i := range d.o.Ranks {
		labels := fmt.Sprintf(`{engine="%d",model_name=%q}`, i, d.o.Model)
		_, _ = fmt.Fprintf(w, "vllm:num_requests_running%s 2.0\nvllm:num_requests_waiting%[1]s 1.0\n%[2]s%[1]s 0.25\n%[3]s_hits_total%[1]s 32.0\n%[3]s_queries_total%[1]s 1.28e+02\n", labels, usage, hits)
		_, _ = fmt.Fprintf(w, "vllm:prompt_tokens_total%s 1000.0\nvllm:generation_tokens_total%[1]s 500.0\nvllm:cache_config_info{block_size=\"16\",cache_dtype=\"auto\",engine=\"%d\",num_gpu_blocks=\"1024\"} 1.0\n", labels, i)
	}
}

// shape is the form of an answer.
type shape int

const (
	shapeText shape = iota
	shapeChat
)

// vllmFields are those that a double of vLLM reads; others are ignored, as there.
type vllmFields struct {
	Model         string          `json:"model"`
	Stream        bool            `json:"stream"`
	StreamOptions json.RawMessage `json:"stream_options"`
	vllmSampling
	MaxCompletion *int            `json:"max_completion_tokens"`
	ReturnIDs     bool            `json:"return_token_ids"`
	AsIDs         bool            `json:"return_tokens_as_token_ids"`
	Params        json.RawMessage `json:"kv_transfer_params"`
}

type vllmSampling struct {
	MaxTokens *int            `json:"max_tokens"`
	MinTokens int             `json:"min_tokens"`
	Stop      []uint32        `json:"stop_token_ids"`
	IgnoreEOS bool            `json:"ignore_eos"`
	Logprobs  json.RawMessage `json:"logprobs"`
	TopP      *float64        `json:"top_p"`
	Heat      *float64        `json:"temperature"`
	Guided    json.RawMessage `json:"structured_outputs"`
	Extra     struct {
		Params json.RawMessage `json:"kv_transfer_params"`
	} `json:"extra_args"`
}

// check reports what vLLM refuses.
func (s *vllmSampling) check() (most int, err error) {
	most = 16
	if s.MaxTokens != nil {
		most = *s.MaxTokens
	}
	switch {
	case most < 1:
		return 0, fmt.Errorf("max_tokens must be at least 1, got %d", most)
	case s.MinTokens > most:
		return 0, fmt.Errorf("min_tokens must be less than or equal to max_tokens=%d, got %d", most, s.MinTokens)
	case s.TopP != nil && (*s.TopP <= 0 || *s.TopP > 1):
		return 0, fmt.Errorf("top_p must be in (0, 1], got %v", *s.TopP)
	case s.Heat != nil && *s.Heat < 0:
		return 0, fmt.Errorf("temperature must be non-negative")
	}
	return most, nil
}

func (d *Double) vllmAnswer(c *call, form shape) {
	var f vllmFields
	if !c.read(&f, false) {
		return
	}
	prompt, err := c.prompt()
	switch {
	case err != nil:
		c.refuse("%v", err)
		return
	case !d.known(f.Model):
		refuse(c.w, http.StatusNotFound, "The model `%s` does not exist.", f.Model)
		return
	case f.StreamOptions != nil && string(f.StreamOptions) != "null" && !f.Stream:
		c.refuse("Stream options can only be defined when `stream=True`.")
		return
	}
	if form == shapeChat && f.MaxCompletion != nil {
		f.MaxTokens = f.MaxCompletion
	}
	most, err := f.check()
	if err != nil {
		c.refuse("%v", err)
		return
	}
	raw, ok := d.vllmExchange(c, f.Model, prompt, f.Params, f.Stream)
	if !ok {
		return
	}
	if form == shapeChat {
		if raw, ok = d.embeddings(c, raw); !ok {
			return
		}
	}
	s := d.sequence(prompt, most, f.MinTokens, f.Stop, f.IgnoreEOS).with(f.Model)
	a := &answer{c: c, s: s, form: form, ids: f.ReturnIDs && !d.o.Simulator, raw: raw}
	a.logprobs(f.Logprobs, f.AsIDs)
	if f.Stream {
		a.stream(f.StreamOptions)
	} else {
		a.whole()
	}
}

func (d *Double) vllmGenerate(c *call) {
	var f struct {
		vllmFields
		IDs      []uint32      `json:"token_ids"`
		Sampling *vllmSampling `json:"sampling_params"`
	}
	if !c.read(&f, false) {
		return
	}
	switch {
	case len(f.IDs) == 0 || f.Sampling == nil:
		c.refuse("token_ids and sampling_params are required")
		return
	case !d.known(f.Model):
		refuse(c.w, http.StatusNotFound, "The model `%s` does not exist.", f.Model)
		return
	}
	most, err := f.Sampling.check()
	if err != nil {
		c.refuse("%v", err)
		return
	}
	given := f.Sampling.Extra.Params // where vLLM takes them from
	if given == nil && d.o.Simulator {
		given = f.Params
	}
	raw, ok := d.vllmExchange(c, f.Model, f.IDs, given, f.Stream)
	if !ok {
		return
	}
	s := d.sequence(f.IDs, most, f.Sampling.MinTokens, f.Sampling.Stop, f.Sampling.IgnoreEOS).with(f.Model)
	a := &answer{c: c, s: s, form: shapeIDs, ids: true, raw: raw}
	a.logprobs(f.Sampling.Logprobs, true)
	if f.Stream {
		a.stream(f.StreamOptions)
	} else {
		a.whole()
	}
}

// vllmExchange plays the connector. It returns the members that the reply of a first leg has for
// another server; ok is false if the request is over.
func (d *Double) vllmExchange(c *call, model string, prompt []uint32, raw json.RawMessage, stream bool) (told map[string]json.RawMessage, ok bool) {
	if raw == nil || string(raw) == "null" {
		return nil, true
	}
	prompt = d.kv(model, prompt)
	var p struct {
		Decode    bool            `json:"do_remote_decode"`
		Prefill   bool            `json:"do_remote_prefill"`
		Request   string          `json:"remote_request_id"`
		Engine    string          `json:"remote_engine_id"`
		Host      *string         `json:"remote_host"`
		Port      json.Number     `json:"remote_port"`
		Blocks    json.RawMessage `json:"remote_block_ids"`
		Transfer  string          `json:"transfer_id"`
		Bootstrap string          `json:"remote_bootstrap_addr"`
	}
	if err := json.Unmarshal(raw, &p); err != nil || p.Decode == p.Prefill {
		c.refuse("kv_transfer_params: %v", err)
		return nil, false
	}
	switch d.o.Connector {
	case "nixl":
		if p.Decode {
			if stream { // accepted, and the params are lost
				return nil, true
			}
			return map[string]json.RawMessage{"kv_transfer_params": d.vllmHold(c, prompt)}, true
		}
		if p.Request == "" || p.Engine == "" || p.Host == nil || p.Port == "" || p.Blocks == nil {
			d.fabric.recompute()
			return nil, true
		}
		if err := d.fabric.take(p.Request, prompt, string(raw)); err != nil {
			refuse(c.w, http.StatusInternalServerError, "KV load failure: %v", err)
			return nil, false
		}
		return nil, true
	case "mooncake":
		return nil, d.mooncake(c, prompt, p.Decode, p.Transfer, p.Engine, p.Bootstrap)
	}
	d.fabric.note("params reached a server without a connector")
	return nil, true
}

// kv returns what tells the KV of a prompt from that of another one, or with another adapter.
func (d *Double) kv(model string, prompt []uint32) []uint32 {
	if slices.Contains(d.o.Loras, model) {
		return append(PromptOf([]byte(model)), prompt...)
	}
	return prompt
}

// vllmHold holds KV for a decode server. Members, their order and their spelling differ
// between releases: these have what is easily lost.
func (d *Double) vllmHold(c *call, prompt []uint32) json.RawMessage {
	key := fmt.Sprintf("%s-%d", c.r.Header.Get("X-Request-Id"), d.fabric.count())
	params := fmt.Sprintf(`{"do_remote_prefill": true, "do_remote_decode":false,"remote_block_ids":[[9007199254740993,18446744073709551615]], "remote_engine_id":%q,"remote_request_id":%q,"remote_host":"localhost","remote_port":5600,"tp_size":1,"remote_blocks_expiry_time":null,"scale":1.0,"future":{"a":"\u00e9","b":1e2}}`,
		d.rankName(0), key)
	d.fabric.hold(key, prompt, params)
	return json.RawMessage(params)
}

// Rehost has decode servers expect the params of prompts that are held with another host, as
// where an operator has set the prefill server's. Then only the members keep their bytes, not
// what stands between them.
func (f *Fabric) Rehost(host string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, h := range f.held {
		h.params = strings.NewReplacer(`"remote_host":"localhost"`, fmt.Sprintf(`"remote_host":%q`, host), `": `, `":`, `, "`, `,"`).Replace(h.params)
	}
}

// mooncake plays a leg of a concurrent exchange. It reports whether the request goes on.
func (d *Double) mooncake(c *call, prompt []uint32, first bool, transfer, engine, bootstrap string) bool {
	role, leg := cluster.RoleDecode, "decode"
	if first {
		role, leg = cluster.RolePrefill, "prefill"
		engine = d.rankName(0)
		if rank := c.r.Header.Get("X-data-parallel-rank"); rank != "" {
			n, err := strconv.Atoi(rank)
			if err != nil || n < 0 || n >= d.o.Ranks {
				c.refuse("no rank %s", rank)
				return false
			}
			engine = d.rankName(n)
		}
	}
	switch {
	case d.o.Role != role:
		c.refuse("a server with the role %s got the leg of a %s server", d.o.Role, leg)
		return false
	case transfer == "" || !first && (engine == "" || !strings.HasPrefix(bootstrap, "http://")):
		c.refuse("kv_transfer_params are incomplete")
		return false
	}
	if err := d.fabric.meet(c.ctx(), engine+"/"+transfer, leg, prompt); err != nil {
		refuse(c.w, http.StatusInternalServerError, "%v", err)
		return false
	}
	return true
}

// topOf returns the most likely tokens, with that which was chosen.
func (a *answer) topOf(before []uint32, id uint32) []uint32 {
	top := Top(before, a.c.d.o.Vocab, a.top)
	if !slices.Contains(top, id) {
		top = append([]uint32{id}, top...) // first, as there
	}
	return top
}
