// openai-go asks a cluster what its users ask: chats, streams, calls, forms, errors. It runs
// with DYNCTL_URL and DYNCTL_MODEL and exits with 1 if anything is not as it should be.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/shared"
)

var (
	client = openai.NewClient(option.WithBaseURL(os.Getenv("DYNCTL_URL")+"/v1"), option.WithAPIKey("none"), option.WithMaxRetries(0))
	place  = map[string]any{
		"type": "object", "required": []string{"city", "days"}, "additionalProperties": false,
		"properties": map[string]any{
			"city": map[string]any{"type": "string", "enum": []string{"Paris", "Rome"}},
			"days": map[string]any{"type": "integer", "minimum": 1, "maximum": 9},
		},
	}
)

type weather struct {
	City string `json:"city"`
	Days int    `json:"days"`
}

func (w weather) bad() bool { return w.City != "Paris" && w.City != "Rome" || w.Days < 1 || w.Days > 9 }

func ask(most int64) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{
		Model: os.Getenv("DYNCTL_MODEL"), Temperature: openai.Float(0), MaxTokens: openai.Int(most),
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("What is the weather in Paris?")},
	}
}

func chat(ctx context.Context) error {
	whole, err := client.Chat.Completions.New(ctx, ask(40))
	if err != nil {
		return err
	}
	text := whole.Choices[0].Message.Content
	q := ask(40)
	q.StreamOptions.IncludeUsage = openai.Bool(true)
	stream := client.Chat.Completions.NewStreaming(ctx, q)
	defer stream.Close()
	var all openai.ChatCompletionAccumulator
	for stream.Next() {
		if !all.AddChunk(stream.Current()) {
			return errors.New("a chunk does not fit the ones before")
		}
	}
	if err := stream.Err(); err != nil {
		return err
	}
	if text == "" || all.Choices[0].Message.Content != text || all.Usage.CompletionTokens != whole.Usage.CompletionTokens {
		return fmt.Errorf("whole %q, streamed %q, usage %v and %v", text, all.Choices[0].Message.Content, whole.Usage, all.Usage)
	}
	return nil
}

func forced(ctx context.Context) error {
	q := ask(200)
	q.Tools = []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{Name: "weather", Parameters: place})}
	q.ParallelToolCalls = openai.Bool(false)
	q.ToolChoice = openai.ChatCompletionToolChoiceOptionUnionParam{OfAuto: openai.String("required")}
	r, err := client.Chat.Completions.New(ctx, q)
	if err != nil {
		return err
	}
	m := r.Choices[0].Message
	var got weather
	if len(m.ToolCalls) != 1 || json.Unmarshal([]byte(m.ToolCalls[0].Function.Arguments), &got) != nil || got.bad() || m.Content != "" {
		return fmt.Errorf("%s", m.RawJSON())
	}
	q.Messages = append(q.Messages, m.ToParam(), openai.ToolMessage("sunny", m.ToolCalls[0].ID))
	q.ToolChoice = openai.ChatCompletionToolChoiceOptionUnionParam{OfAuto: openai.String("auto")}
	_, err = client.Chat.Completions.New(ctx, q)
	return err
}

func form(ctx context.Context) error {
	q := ask(600)
	q.ResponseFormat.OfJSONSchema = &shared.ResponseFormatJSONSchemaParam{
		JSONSchema: shared.ResponseFormatJSONSchemaJSONSchemaParam{Name: "weather", Strict: openai.Bool(true), Schema: place},
	}
	r, err := client.Chat.Completions.New(ctx, q)
	if err != nil {
		return err
	}
	var got weather
	if err := json.Unmarshal([]byte(r.Choices[0].Message.Content), &got); err != nil || got.bad() {
		return fmt.Errorf("%s: %w", r.RawJSON(), err)
	}
	return nil
}

func refused(ctx context.Context) error {
	q := ask(40)
	q.Model = "nobody"
	_, err := client.Chat.Completions.New(ctx, q)
	var api *openai.Error
	if !errors.As(err, &api) || api.StatusCode != 404 || api.Code != "model_not_found" || api.Param != "model" {
		return fmt.Errorf("wrong model: %w", err)
	}
	_, err = client.Embeddings.New(ctx, openai.EmbeddingNewParams{Model: os.Getenv("DYNCTL_MODEL"), Input: openai.EmbeddingNewParamsInputUnion{OfString: openai.String("x")}})
	if !errors.As(err, &api) || api.StatusCode != 404 || api.Code != "unknown_url" {
		return fmt.Errorf("embeddings, which are not served: %w", err)
	}
	return nil
}

func abort(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream := client.Chat.Completions.NewStreaming(ctx, ask(2000), option.WithJSONSet("ignore_eos", true))
	defer stream.Close()
	n := 0
	for stream.Next() {
		if n++; n == 3 {
			cancel()
		}
	}
	if !errors.Is(stream.Err(), context.Canceled) || n > 1000 {
		return fmt.Errorf("%d chunks: %w", n, stream.Err())
	}
	return nil
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	code := 0
	for _, c := range []struct {
		name string
		run  func(context.Context) error
	}{{"chat and stream", chat}, {"forced tool call", forced}, {"response_format", form}, {"errors", refused}, {"abort", abort}} {
		if err := c.run(ctx); err != nil {
			fmt.Printf("   %s: FAILED: %v\n", c.name, err)
			code = 1
			continue
		}
		fmt.Printf("   %s: ok\n", c.name)
	}
	os.Exit(code)
}
