package externaltest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/dynctl/dynctl/internal/cluster"
)

// sglang adds what SGLang has.
func (d *Double) sglang(mux *http.ServeMux) {
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		d.fabric.note("/health generates a token")
		w.WriteHeader(http.StatusOK)
	})
	d.get(mux, "/v1/models", d.models(8192))
	info := "/server_info"
	if d.o.Version == "old" {
		info = "/get_server_info"
		d.get(mux, "/get_load", func() any { return []any{map[string]any{"dp_rank": 0, "num_reqs": 2}} })
	} else {
		d.get(mux, "/v1/loads", func() any { return map[string]any{"loads": []any{}} })
	}
	d.get(mux, info, d.sglangInfo)
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		if d.o.NoMetrics {
			http.NotFound(w, r)
			return
		}
		for i := range d.o.Ranks {
			_, _ = fmt.Fprintf(w, "sglang:num_running_reqs{dp_rank=\"%d\",model_name=\"m\"} 2.0\nsglang:num_queue_reqs{dp_rank=\"%[1]d\"} 1.0\nsglang:token_usage{dp_rank=\"%[1]d\"} 0.25\nsglang:prompt_tokens_total{dp_rank=\"%[1]d\"} 1000.0\nsglang:generation_tokens_total{dp_rank=\"%[1]d\"} 500.0\n", i)
		}
	})
	mux.HandleFunc("POST /generate", d.compute(d.sglangGenerate))
	mux.HandleFunc("POST /v1/completions", d.compute(func(c *call) { d.sglangAnswer(c, shapeText) }))
	mux.HandleFunc("POST /v1/chat/completions", d.compute(func(c *call) { d.sglangAnswer(c, shapeChat) }))
	mux.HandleFunc("POST /abort_request", func(_ http.ResponseWriter, r *http.Request) {
		var a struct {
			ID string `json:"rid"`
		}
		if json.NewDecoder(r.Body).Decode(&a) == nil {
			d.mu.Lock()
			d.aborted = append(d.aborted, a.ID)
			d.mu.Unlock()
		}
	})
	d.sglangSleep(mux)
}

// mode is for what the server was started.
func (d *Double) mode() string {
	if d.o.Role == "" || d.o.Connector != "bootstrap" {
		return "null"
	}
	return string(d.o.Role)
}

func (d *Double) sglangInfo() any {
	return map[string]any{
		"model_path": "/models/" + d.o.Model, "version": "0.5.4", "disaggregation_mode": d.mode(), "disaggregation_bootstrap_port": 8998,
		"disaggregation_transfer_backend": "mooncake", "dist_init_addr": nil, "tp_size": 2, "dp_size": d.o.Ranks, "page_size": 16, "kv_cache_dtype": "auto",
		"context_length": nil, "max_running_requests": 64, "max_total_num_tokens": 16384, "internal_states": []any{map[string]any{}},
		"enable_memory_saver": !d.o.NoSleep, "enable_weights_cpu_backup": !d.o.NoBackup,
	}
}

// place is where legs meet, as a request has it.
type place struct {
	Host *string      `json:"bootstrap_host"`
	Port *int         `json:"bootstrap_port"`
	Room *json.Number `json:"bootstrap_room"`
}

// meet plays a leg. It returns a status and an error for a request that ends here.
func (d *Double) meet(ctx context.Context, p place, prompt []uint32) (int, error) {
	mode := d.mode()
	if mode == "null" {
		if p.Room != nil {
			d.fabric.note("a room reached a server that exchanges no KV")
		}
		return 0, nil
	}
	if p.Host == nil || p.Room == nil || p.Port == nil {
		return http.StatusBadRequest, errors.New("disaggregated request received without bootstrap room id")
	}
	if _, err := strconv.ParseInt(p.Room.String(), 10, 64); err != nil {
		return http.StatusBadRequest, fmt.Errorf("bootstrap_room: %w", err)
	}
	if err := d.fabric.meet(ctx, fmt.Sprintf("%s:%d/%s", *p.Host, *p.Port, *p.Room), mode, prompt); err != nil {
		return http.StatusInternalServerError, err
	}
	return 0, nil
}

// enter notes the id of a request, which none that runs may have.
func (d *Double) enter(id string) (leave func(), err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if id == "" {
		return func() {}, nil
	}
	if d.running[id] {
		return nil, fmt.Errorf("duplicate request ID detected: %s", id)
	}
	d.running[id] = true
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.running, id)
	}, nil
}

func (d *Double) sglangGenerate(c *call) {
	var f struct {
		place
		IDs      []uint32 `json:"input_ids"`
		RID      string   `json:"rid"`
		Stream   bool     `json:"stream"`
		Logprob  bool     `json:"return_logprob"`
		Top      int      `json:"top_logprobs_num"`
		Sampling struct {
			Most      *int     `json:"max_new_tokens"`
			Least     int      `json:"min_new_tokens"`
			Stop      []uint32 `json:"stop_token_ids"`
			IgnoreEOS bool     `json:"ignore_eos"`
			TopK      int      `json:"top_k"`
			TopP      float64  `json:"top_p"`
		} `json:"sampling_params"`
	}
	if !c.read(&f, false) {
		return
	}
	leave, err := d.enter(f.RID)
	if err != nil {
		c.refuse("%v", err)
		return
	}
	defer leave()
	most := 128
	if f.Sampling.Most != nil {
		most = *f.Sampling.Most
	}
	switch {
	case len(f.IDs) == 0:
		c.refuse("Either text, input_ids or input_embeds should be provided.")
		return
	case f.Sampling.Least > most:
		c.refuse("min_new_tokens must be in [0, max_new_tokens(%d)]", most)
		return
	case f.Sampling.TopK == 0 || f.Sampling.TopK < -1 || f.Sampling.TopP <= 0 || f.Sampling.TopP > 1:
		c.refuse("top_k must be -1 (disable) or at least 1, top_p in (0, 1]")
		return
	}
	a := native{c: c, s: d.sequence(f.IDs, most, f.Sampling.Least, f.Sampling.Stop, f.Sampling.IgnoreEOS), tell: f.Logprob, top: f.Top}
	if d.mode() == string(cluster.RolePrefill) {
		a.s.max, a.s.min = 1, 0 // it stops after the prompt by itself
	}
	if f.Stream {
		c.begin()
	}
	if status, err := d.meet(c.ctx(), f.place, f.IDs); err != nil {
		if !f.Stream {
			refuse(c.w, status, "%v", err)
			return
		}
		c.event(map[string]any{"error": map[string]any{"message": err.Error(), "code": status}})
		c.done()
		return
	}
	a.write(f.Stream)
}

// native writes an answer of /generate.
type native struct {
	c    *call
	s    *sequence
	tell bool
	top  int
}

// out is the answer so far, or from a token on.
func (a native) out(from int, reason string) map[string]any {
	made := a.s.ids[a.s.prompt:]
	meta := map[string]any{"id": "x", "prompt_tokens": a.s.prompt, "completion_tokens": len(made), "cached_tokens": cachedOf(a.s.prompt), "finish_reason": nil}
	switch reason {
	case "stop":
		meta["finish_reason"] = map[string]any{"type": "stop", "matched": made[len(made)-1]}
	case "length":
		meta["finish_reason"] = map[string]any{"type": "length", "length": a.s.max}
	}
	visible := made[from:]
	if a.tell {
		var values, tops []any
		for i := from; i < len(made); i++ {
			before := a.s.ids[:a.s.prompt+i]
			values = append(values, []any{Logprob(before, made[i]), made[i], nil})
			var top []any
			for _, t := range Top(before, a.c.d.o.Vocab, a.top) {
				top = append(top, []any{Logprob(before, t), t, nil})
			}
			tops = append(tops, top)
		}
		meta["output_token_logprobs"] = values
		if a.top > 0 {
			meta["output_top_logprobs"] = tops
		}
	}
	return map[string]any{"text": Text(visible), "output_ids": visible, "meta_info": meta}
}

func (a native) write(stream bool) {
	from := 0
	_, reason, ok := a.c.generate(a.s, func(_ uint32, reason string) {
		if !stream {
			return
		}
		a.c.event(a.out(from, reason))
		if a.c.d.o.Incremental {
			from = a.s.made()
		}
	})
	switch {
	case !ok:
	case stream:
		a.c.done()
	default:
		reply(a.c.w, a.out(0, reason))
		a.c.complete = true
	}
}

func (d *Double) sglangAnswer(c *call, form shape) {
	var f struct {
		place
		Model         string          `json:"model"`
		RID           string          `json:"rid"`
		Stream        bool            `json:"stream"`
		StreamOptions json.RawMessage `json:"stream_options"`
		MaxTokens     *int            `json:"max_tokens"`
		MaxCompletion *int            `json:"max_completion_tokens"`
		MinTokens     int             `json:"min_tokens"`
		TopP          *float64        `json:"top_p"`
	}
	if !c.read(&f, false) {
		return
	}
	leave, err := d.enter(f.RID)
	if err != nil {
		c.refuse("%v", err)
		return
	}
	defer leave()
	prompt, err := c.prompt()
	if err != nil {
		c.refuse("%v", err)
		return
	}
	most := 128
	switch {
	case f.MaxCompletion != nil:
		most = *f.MaxCompletion
	case f.MaxTokens != nil:
		most = *f.MaxTokens
	}
	switch {
	case most < 0:
		c.refuse("max_new_tokens must be at least 0, got %d", most)
		return
	case f.TopP != nil && (*f.TopP <= 0 || *f.TopP > 1):
		c.refuse("top_p must be in (0, 1], got %v", *f.TopP)
		return
	}
	if d.mode() == string(cluster.RolePrefill) {
		most, f.MinTokens = 1, 0
	}
	if status, err := d.meet(c.ctx(), f.place, prompt); err != nil {
		refuse(c.w, status, "%v", err)
		return
	}
	a := &answer{c: c, s: d.sequence(prompt, most, f.MinTokens, nil, false), form: form}
	if f.Stream {
		a.stream(f.StreamOptions)
	} else {
		a.whole()
	}
}
