//go:build !race

// Tests with the official client are left out under the race detector: compiling the client
// for it takes longer than all other tests of the package together.

package frontend

import (
	"context"
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/shared"

	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/worker"
)

// weather is a tool in OpenAI's words.
func weather(name string) openai.ChatCompletionToolUnionParam {
	return openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{
		Name: name, Description: openai.String("tells the weather"), Strict: openai.Bool(true),
		Parameters: shared.FunctionParameters{"type": "object", "properties": body{"city": body{"type": "string"}}},
	})
}

func withTools(names ...string) openai.ChatCompletionNewParams {
	p := openai.ChatCompletionNewParams{Model: testModel, Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("Hi")}}
	for _, name := range names {
		p.Tools = append(p.Tools, weather(name))
	}
	return p
}

// collected reads a stream through the client's own accumulator.
func collected(t *testing.T, client openai.Client, p openai.ChatCompletionNewParams, opts ...option.RequestOption) (openai.ChatCompletionAccumulator, []openai.ChatCompletionChunk) {
	t.Helper()
	p.StreamOptions = openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)}
	stream := client.Chat.Completions.NewStreaming(t.Context(), p, opts...)
	var acc openai.ChatCompletionAccumulator
	var chunks []openai.ChatCompletionChunk
	for stream.Next() {
		if !acc.AddChunk(stream.Current()) {
			t.Errorf("the accumulator refuses %s", stream.Current().RawJSON())
		}
		chunks = append(chunks, stream.Current())
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	return acc, chunks
}

func TestToolCalls(t *testing.T) {
	const text = "Let me see.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"São \\\"P\\\" 😀\"}}\n</tool_call>\n<tool_call>\n{\"name\": \"get_time\", \"arguments\": {}}\n</tool_call>"
	const arguments = `{"city": "São \"P\" 😀"}`
	w := newWorld(t)
	fk := w.fake("worker-1", say(text), roomy)
	client := w.frontend().waitModel(1).official()
	verify := func(t *testing.T, got openai.ChatCompletion) {
		t.Helper()
		c := got.Choices[0]
		calls := c.Message.ToolCalls
		if c.FinishReason != "tool_calls" || c.Message.Content != "Let me see.\n" || len(calls) != 2 {
			t.Fatalf("got %+v", c)
		}
		if calls[0].Function.Name != "get_weather" || calls[0].Function.Arguments != arguments || calls[0].Type != "function" ||
			calls[1].Function.Name != "get_time" || calls[1].Function.Arguments != "{}" {
			t.Errorf("calls %+v", calls)
		}
		if !strings.HasPrefix(calls[0].ID, "call-") || calls[0].ID == calls[1].ID {
			t.Errorf("ids %q and %q", calls[0].ID, calls[1].ID)
		}
		if got.Usage.CompletionTokens != int64(len(text)) {
			t.Errorf("usage %+v", got.Usage)
		}
	}
	t.Run("whole", func(t *testing.T) {
		got, err := client.Chat.Completions.New(t.Context(), withTools("get_weather", "get_time"))
		if err != nil {
			t.Fatal(err)
		}
		verify(t, *got)
	})
	t.Run("streamed", func(t *testing.T) {
		acc, chunks := collected(t, client, withTools("get_weather", "get_time"))
		verify(t, acc.ChatCompletion)
		begins, pieces := 0, 0
		for _, chunk := range chunks {
			for _, c := range chunk.Choices {
				for _, call := range c.Delta.ToolCalls {
					if call.Function.Name == "" {
						pieces++
						continue
					}
					if call.Index != int64(begins) || call.ID == "" || call.Type != "function" || !strings.Contains(chunk.RawJSON(), `"arguments":""`) {
						t.Errorf("a call begins with %s", chunk.RawJSON())
					}
					begins++
				}
			}
		}
		if begins != 2 || pieces < 15 {
			t.Errorf("%d calls in %d pieces", begins, pieces)
		}
	})
	t.Run("the template shows the tools", func(t *testing.T) {
		prompt := testProcessor().Decode(fk.got()[0].TokenIDs)
		if !strings.Contains(prompt, `"name": "get_weather", "parameters"`) && !strings.Contains(prompt, `tells the weather`) {
			t.Errorf("prompt %q", prompt)
		}
	})
	for name, change := range map[string]func(*openai.ChatCompletionNewParams){
		"without tools": func(p *openai.ChatCompletionNewParams) { p.Tools = nil },
		"choice none": func(p *openai.ChatCompletionNewParams) {
			p.ToolChoice = openai.ChatCompletionToolChoiceOptionUnionParam{OfAuto: openai.String("none")}
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := withTools("get_weather")
			change(&p)
			got, err := client.Chat.Completions.New(t.Context(), p)
			if err != nil {
				t.Fatal(err)
			}
			if c := got.Choices[0]; c.Message.Content != text || c.FinishReason != "stop" || len(c.Message.ToolCalls) > 0 {
				t.Errorf("got %+v", c)
			}
			requests := fk.got()
			if prompt := testProcessor().Decode(requests[len(requests)-1].TokenIDs); strings.Contains(prompt, "get_weather") {
				t.Errorf("the prompt shows tools: %q", prompt)
			}
		})
	}
	t.Run("one call at most", func(t *testing.T) {
		p := withTools("get_weather", "get_time")
		p.ParallelToolCalls = openai.Bool(false)
		end := int64(strings.Index(text, "}}") + 1) // the arguments are complete
		acc, _ := collected(t, client, p)
		if c := acc.Choices[0]; len(c.Message.ToolCalls) != 1 || c.Message.ToolCalls[0].Function.Arguments != arguments || c.FinishReason != "tool_calls" || acc.Usage.CompletionTokens != end {
			t.Errorf("got %+v, usage %+v, want %d tokens", c, acc.Usage, end)
		}
	})
	t.Run("cut off", func(t *testing.T) {
		p := withTools("get_weather")
		p.MaxTokens = openai.Int(int64(strings.Index(text, "São")))
		acc, _ := collected(t, client, p)
		if c := acc.Choices[0]; len(c.Message.ToolCalls) != 1 || c.Message.ToolCalls[0].Function.Arguments != `{"city": "` || c.FinishReason != "length" {
			t.Errorf("got %+v", c)
		}
	})
	t.Run("cut off before the call", func(t *testing.T) {
		p := withTools("get_weather")
		p.MaxTokens = openai.Int(20)
		got, err := client.Chat.Completions.New(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		if c := got.Choices[0]; c.Message.Content != text[:20] || c.FinishReason != "length" {
			t.Errorf("got %+v", c)
		}
	})
}

// A conversation goes on after calls: they and their results reach the template.
func TestToolConversation(t *testing.T) {
	w := newWorld(t)
	fk := w.fake("worker-1", say("22 degrees."), roomy)
	client := w.frontend().waitModel(1).official()
	p := withTools("get_weather")
	p.Messages = append(p.Messages, openai.ChatCompletionMessageParamUnion{OfAssistant: &openai.ChatCompletionAssistantMessageParam{
		ToolCalls: []openai.ChatCompletionMessageToolCallUnionParam{{OfFunction: &openai.ChatCompletionMessageFunctionToolCallParam{
			ID: "call-1", Function: openai.ChatCompletionMessageFunctionToolCallFunctionParam{Name: "get_weather", Arguments: `{"city":"Paris"}`},
		}}},
	}}, openai.ToolMessage("22", "call-1"))
	got, err := client.Chat.Completions.New(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	if c := got.Choices[0]; c.Message.Content != "22 degrees." || c.FinishReason != "stop" {
		t.Errorf("got %+v", c)
	}
	prompt := testProcessor().Decode(fk.got()[0].TokenIDs)
	for _, part := range []string{`<tool_call>{"arguments": {"city": "Paris"}, "name": "get_weather"}</tool_call>`, "tool\n22"} {
		if !strings.Contains(prompt, part) {
			t.Errorf("no %q in the prompt %q", part, prompt)
		}
	}
}

func TestReasoningContent(t *testing.T) {
	const text = "<think>\nLet me see.\n</think>\n\n<tool_call>{\"name\": \"get_weather\", \"arguments\": {}}</tool_call>"
	reasoned := int64(strings.Index(text, "</think>") + len("</think>"))
	w := newWorld(t)
	w.fake("worker-1", say(text), roomy, func(fk *fake) { fk.card.Runtime.ReasoningParser = "qwen3" })
	f := w.frontend().waitModel(1)
	client := f.official()
	t.Run("whole", func(t *testing.T) {
		a := readAll(t, f.post("/v1/chat/completions", chatBody(body{"tools": withTools("get_weather").Tools})))
		for _, part := range []string{`"content":null,"reasoning_content":"Let me see."`, `"finish_reason":"tool_calls"`, `"function":{"name":"get_weather","arguments":"{}"}`, `"completion_tokens_details":{"reasoning_tokens":`} {
			if !strings.Contains(a, part) {
				t.Errorf("no %s in %s", part, a)
			}
		}
	})
	t.Run("streamed", func(t *testing.T) {
		acc, chunks := collected(t, client, withTools("get_weather"))
		reasoning := ""
		for _, chunk := range chunks {
			for _, c := range chunk.Choices {
				var delta struct {
					Reasoning string `json:"reasoning_content"`
				}
				if err := json.Unmarshal([]byte(c.Delta.RawJSON()), &delta); err != nil {
					t.Fatal(err)
				}
				reasoning += delta.Reasoning
			}
		}
		if c := acc.Choices[0]; reasoning != "Let me see." || c.Message.Content != "" || len(c.Message.ToolCalls) != 1 || c.FinishReason != "tool_calls" {
			t.Errorf("reasoning %q, %+v", reasoning, c)
		}
		// Counted are the tokens that end within reasoning, and the one that ends it.
		if got := acc.Usage.CompletionTokensDetails.ReasoningTokens; got != reasoned {
			t.Errorf("%d reasoning tokens, want %d", got, reasoned)
		}
	})
	t.Run("without tools", func(t *testing.T) {
		got, err := client.Chat.Completions.New(t.Context(), withTools())
		if err != nil {
			t.Fatal(err)
		}
		if c := got.Choices[0]; !strings.HasPrefix(c.Message.Content, "<tool_call>") || c.FinishReason != "stop" {
			t.Errorf("got %+v", c)
		}
	})
}

// A template that opens the reasoning, or closes it, decides where the text begins.
func TestPromptBeginsReasoning(t *testing.T) {
	const template = `{% for m in messages %}{{ m.content }}{% endfor %}<think>{{ "\n\n</think>\n\n" if enable_thinking is defined and not enable_thinking else "\n" }}`
	w := newWorld(t)
	w.fake("worker-1", say("Hm.\n</think>\n\nHi"), func(fk *fake) { fk.files = filesWithTemplate(t, template) })
	client := w.frontend().waitModel(1).official()
	for _, tc := range []struct {
		kwargs    body
		content   string
		reasoning string
	}{{body{}, "Hi", `"reasoning_content":"Hm."`}, {body{"enable_thinking": false}, "Hm.\n</think>\n\nHi", ""}} {
		got, err := client.Chat.Completions.New(t.Context(), withTools(), option.WithJSONSet("chat_template_kwargs", tc.kwargs))
		if err != nil {
			t.Fatal(err)
		}
		m := got.Choices[0].Message
		if m.Content != tc.content || !strings.Contains(m.RawJSON(), tc.reasoning) || strings.Contains(m.RawJSON(), "reasoning_content") != (tc.reasoning != "") {
			t.Errorf("%v: got %s", tc.kwargs, m.RawJSON())
		}
	}
}

// Marks that are special tokens of the model are seen by the parser and leave no
// other text, while other special tokens stay hidden.
func TestSpecialMarks(t *testing.T) {
	w := newWorld(t)
	files := map[string][]byte{}
	for name, content := range testFiles() {
		files[name] = content
	}
	var tokenizer map[string]any
	if err := json.Unmarshal(files["tokenizer.json"], &tokenizer); err != nil {
		t.Fatal(err)
	}
	added := tokenizer["added_tokens"].([]any)
	special := map[string]uint32{}
	for _, mark := range []string{"<|python_tag|>", "<|eom_id|>"} {
		id := testProcessor().VocabSize() + len(special)
		special[mark] = uint32(id)
		added = append(added, body{"id": id, "content": mark, "special": true, "normalized": false, "single_word": false, "lstrip": false, "rstrip": false})
	}
	tokenizer["added_tokens"] = added
	var err error
	if files["tokenizer.json"], err = json.Marshal(tokenizer); err != nil {
		t.Fatal(err)
	}
	ids := append(tokens("Ok "), special["<|python_tag|>"])
	ids = append(append(ids, tokens(`{"name": "get_weather", "parameters": {}}`)...), special["<|eom_id|>"])
	w.fake("worker-1", sayTokens(ids), roomy, func(fk *fake) { fk.files, fk.card.Runtime.ToolCallParser = files, "llama3_json" })
	client := w.frontend().waitModel(1).official()
	got, err := client.Chat.Completions.New(t.Context(), withTools("get_weather"))
	if err != nil {
		t.Fatal(err)
	}
	if c := got.Choices[0]; c.Message.Content != "Ok " || len(c.Message.ToolCalls) != 1 || c.FinishReason != "tool_calls" {
		t.Errorf("got %+v", c)
	}
	if got, err = client.Chat.Completions.New(t.Context(), withTools()); err != nil {
		t.Fatal(err)
	}
	if c := got.Choices[0]; c.Message.Content != `Ok {"name": "get_weather", "parameters": {}}` || c.FinishReason != "stop" {
		t.Errorf("without tools: %+v", c)
	}
}

// A call goes on where it was when its worker is lost.
func TestToolCallMigrates(t *testing.T) {
	const text = `<tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}</tool_call>`
	for _, at := range []int{3, strings.Index(text, "weather"), strings.Index(text, "ris"), len(text) - 3} {
		w := newWorld(t)
		var once atomic.Bool
		for _, name := range []string{"worker-1", "worker-2"} {
			w.fake(name, say(text, func(ctx context.Context, n int) error {
				if n == at && once.CompareAndSwap(false, true) {
					return engineStops(ctx, nil)
				}
				return nil
			}), roomy)
		}
		acc, _ := collected(t, w.frontend().waitModel(2).official(), withTools("get_weather"))
		if c := acc.Choices[0]; len(c.Message.ToolCalls) != 1 || c.Message.ToolCalls[0].Function.Arguments != `{"city": "Paris"}` || c.FinishReason != "tool_calls" || !once.Load() {
			t.Errorf("lost at %d: got %+v", at, c)
		}
	}
}

// What the assignment of a worker says about formats reaches the frontend.
func TestWorkersPublishFormats(t *testing.T) {
	w := newWorld(t)
	w.realWorker("worker-1", 0, func(c *worker.Config) {
		c.Assignment.Model.ToolParser, c.Assignment.Model.ReasoningParser = "mistral", "granite"
	})
	m := w.frontend().waitModel(1).registry.find(testModel)
	got, err := (&toolRequest{raw: json.RawMessage("[{}]")}).formats(m)
	if err != nil || got.tool != "mistral" || got.reasoning != "granite" {
		t.Errorf("got %+v, %v", got, err)
	}
}

// sayTokens generates fixed tokens, several at once.
func sayTokens(ids []uint32) generator {
	return func(_ context.Context, req protocol.PreprocessedRequest, send func(protocol.EngineOutput) error) error {
		for rest := ids; len(rest) > 0; {
			n := min(3, len(rest))
			o := protocol.EngineOutput{TokenIDs: rest[:n]}
			if rest = rest[n:]; len(rest) == 0 {
				o.Finish = protocol.FinishStop
			}
			if err := send(o); err != nil {
				return err
			}
		}
		return nil
	}
}
