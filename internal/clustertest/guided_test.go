package clustertest_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/clustertest"
)

const personSchema = `{"type":"object","properties":{
	"name":{"type":"string","maxLength":12},
	"age":{"type":"integer","minimum":0,"maximum":130},
	"tags":{"type":"array","items":{"enum":["a","b","c"]},"maxItems":3},
	"home":{"anyOf":[{"type":"null"},{"type":"object","properties":{"zip":{"type":"string","pattern":"^[0-9]{5}$"}},"required":["zip"],"additionalProperties":false}]}
},"required":["name","age","tags","home"],"additionalProperties":false}`

// A model with random weights says what it is told to, prefilled here or elsewhere,
// drawn or greedy.
func TestGuidedOutput(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t, clustertest.Options{
		Model: mediumModel(t), Prefill: 1, Decode: 2, Engine: cluster.EngineSpec{BlockSize: 16, KVBlocks: 1024},
	})
	c.WaitRemotePrefill()
	compiler := jsonschema.NewCompiler()
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(personSchema))
	if err != nil {
		t.Fatal(err)
	}
	if err := compiler.AddResource("person.json", doc); err != nil {
		t.Fatal(err)
	}
	schema := compiler.MustCompile("person.json")

	chat := func(body clustertest.Body) (message struct {
		Content string `json:"content"`
	}, err error) {
		body["model"], body["max_tokens"] = c.Model, 400
		resp, err := c.Post(t.Context(), "/v1/chat/completions", body)
		if err != nil {
			return message, err
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			return message, fmt.Errorf("status %d: %s (%w)", resp.StatusCode, b, err)
		}
		var answer struct {
			Choices []struct {
				Message json.RawMessage `json:"message"`
				Finish  string          `json:"finish_reason"`
			} `json:"choices"`
		}
		if err := json.Unmarshal(b, &answer); err != nil {
			return message, err
		}
		if f := answer.Choices[0].Finish; f == "length" {
			return message, fmt.Errorf("cut off: %s", b)
		}
		return message, json.Unmarshal(answer.Choices[0].Message, &message)
	}
	var wg sync.WaitGroup
	for i, prompt := range texts(8, 80) {
		wg.Go(func() {
			m, err := chat(clustertest.Body{
				"messages": []any{map[string]any{"role": "user", "content": prompt}}, "temperature": i % 2, "seed": i,
				"response_format": map[string]any{"type": "json_schema", "json_schema": map[string]any{"name": "person", "strict": true, "schema": json.RawMessage(personSchema)}},
			})
			if err != nil {
				t.Error(err)
				return
			}
			v, err := jsonschema.UnmarshalJSON(strings.NewReader(m.Content))
			if err == nil {
				err = schema.Validate(v)
			}
			if err != nil {
				t.Errorf("%q: %v", m.Content, err)
			}
		})
	}
	wg.Wait()

	for i := range 2 {
		a, err := c.Complete(t.Context(), clustertest.Body{"prompt": "Pick one", "guided_choice": []string{"yes", "no", "maybe"}, "seed": i})
		if err != nil || a.Text != "yes" && a.Text != "no" && a.Text != "maybe" || a.Finish != "stop" {
			t.Errorf("choice: %+v %v", a, err)
		}
	}
}
