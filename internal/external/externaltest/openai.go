package externaltest

import (
	"fmt"
	"net/http"

	"encoding/json"
)

// openai adds what llama.cpp has, or another server with the OpenAI API: text alone.
func (d *Double) openai(mux *http.ServeMux) {
	if !d.o.NoHealth {
		d.get(mux, "/health", func() any { return map[string]any{"status": "ok"} })
	}
	d.get(mux, "/v1/models", d.models(0))
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		if d.o.NoMetrics {
			http.NotFound(w, r)
			return
		}
		_, _ = fmt.Fprint(w, "llamacpp:requests_processing 2\nllamacpp:requests_deferred 1\nllamacpp:prompt_tokens_total 1000\nllamacpp:tokens_predicted_total 500\n")
	})
	mux.HandleFunc("POST /v1/completions", d.compute(func(c *call) { d.openaiAnswer(c, shapeText) }))
	mux.HandleFunc("POST /v1/chat/completions", d.compute(func(c *call) { d.openaiAnswer(c, shapeChat) }))
}

func (d *Double) openaiAnswer(c *call, form shape) {
	var f struct {
		Model         string          `json:"model"`
		Stream        bool            `json:"stream"`
		StreamOptions json.RawMessage `json:"stream_options"`
		MaxTokens     *int            `json:"max_tokens"`
		MaxCompletion *int            `json:"max_completion_tokens"`
		TopP          *float64        `json:"top_p"`
	}
	if !c.read(&f, false) {
		return
	}
	prompt, err := c.prompt()
	most := 16
	switch {
	case f.MaxCompletion != nil:
		most = *f.MaxCompletion
	case f.MaxTokens != nil:
		most = *f.MaxTokens
	}
	switch {
	case err != nil:
		c.refuse("%v", err)
	case !d.known(f.Model):
		refuse(c.w, http.StatusNotFound, "model %q not found", f.Model)
	case most < 1:
		c.refuse("max_tokens is too small")
	case f.TopP != nil && (*f.TopP <= 0 || *f.TopP > 1):
		c.refuse("top_p must be in (0, 1]")
	default:
		a := &answer{c: c, s: d.sequence(prompt, most, 0, nil, false).with(f.Model), form: form}
		if f.Stream {
			a.stream(f.StreamOptions)
		} else {
			a.whole()
		}
	}
}
