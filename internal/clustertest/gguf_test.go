package clustertest_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/dynctl/dynctl/internal/chat"
	"github.com/dynctl/dynctl/internal/clustertest"
	"github.com/dynctl/dynctl/internal/engine/cpu"
	"github.com/dynctl/dynctl/internal/engine/cpu/cputest"
	"github.com/dynctl/dynctl/internal/model/gguf"
	"github.com/dynctl/dynctl/internal/model/modeltest"
)

// A GGUF file is served like the folder that it was made of: template, tokens and
// text of a chat are the same, and frontends need nothing but what workers send.
func TestGGUFIsServed(t *testing.T) {
	t.Parallel()
	dir := modeltest.Generate(t, modeltest.Spec{Family: "llama", KVHeads: 2, Vocab: 600})
	messages := []json.RawMessage{
		json.RawMessage(`{"role":"system","content":"Be brief."}`), json.RawMessage(`{"role":"user","content":"What is 17 + 25?"}`),
	}
	files := chat.Files{}
	for _, name := range []string{"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"} {
		raw, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		files[name] = raw
	}
	p, err := chat.Load(files)
	if err != nil {
		t.Fatal(err)
	}
	prompt, err := p.RenderChat(t.Context(), messages, nil, nil, true)
	if err != nil {
		t.Fatal(err)
	}
	ids := p.EncodeChat(prompt)
	want := p.Decode(cputest.New(t, dir, cpu.Options{BlockSize: blockSize, KVDType: cpu.KVAuto}).Greedy(ids, outTokens))

	c := clustertest.Start(t, clustertest.Options{Model: modeltest.GGUF(t, dir, gguf.F32), Prefill: 1, Decode: 1})
	resp, err := c.Post(t.Context(), "/v1/chat/completions", clustertest.Body{
		"model": c.Model, "messages": messages, "max_tokens": outTokens, "temperature": 0,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var a struct {
		Choices []struct {
			Message struct{ Content string }
		}
		Usage struct {
			PromptTokens int `json:"prompt_tokens"`
		}
	}
	if err := json.NewDecoder(resp.Body).Decode(&a); err != nil {
		t.Fatal(err)
	}
	if len(a.Choices) != 1 || a.Choices[0].Message.Content != want || a.Usage.PromptTokens != len(ids) {
		t.Errorf("answer %+v, want %q to %d tokens", a, want, len(ids))
	}
}
