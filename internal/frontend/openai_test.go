//go:build !race

package frontend

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/dynctl/dynctl/internal/requestplane"
)

// official is OpenAI's own client, pointed at a frontend.
func (f *front) official() openai.Client {
	return openai.NewClient(option.WithBaseURL(f.URL()+"/v1/"), option.WithAPIKey("any"), option.WithMaxRetries(0), option.WithHTTPClient(f.client))
}

func TestOfficialClient(t *testing.T) {
	const text = `Line one
"quoted" \ and <tag> & 😀`
	w := newWorld(t)
	w.fake("worker-1", say(text))
	f := w.frontend().waitModel(1)
	client := f.official()
	messages := []openai.ChatCompletionMessageParamUnion{openai.SystemMessage("Be brief."), openai.UserMessage("Hi")}

	t.Run("chat", func(t *testing.T) {
		got, err := client.Chat.Completions.New(t.Context(), openai.ChatCompletionNewParams{Model: testModel, Messages: messages, N: openai.Int(2)})
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Choices) != 2 || got.Choices[1].Message.Content != text || got.Choices[1].FinishReason != "stop" || got.Usage.CompletionTokens != int64(2*len(text)) {
			t.Errorf("got %s", got.RawJSON())
		}
	})
	t.Run("chat stream", func(t *testing.T) {
		stream := client.Chat.Completions.NewStreaming(t.Context(), openai.ChatCompletionNewParams{
			Model: testModel, Messages: messages,
			StreamOptions: openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)},
		})
		var acc openai.ChatCompletionAccumulator
		chunks, finished := 0, false
		for stream.Next() {
			chunk := stream.Current()
			if !acc.AddChunk(chunk) {
				t.Errorf("the accumulator refuses %s", chunk.RawJSON())
			}
			if content, ok := acc.JustFinishedContent(); ok {
				finished = content == text
			}
			chunks++
		}
		if err := stream.Err(); err != nil {
			t.Fatal(err)
		}
		if len(acc.Choices) != 1 || acc.Choices[0].Message.Content != text || string(acc.Choices[0].Message.Role) != "assistant" || !finished {
			t.Errorf("accumulated %+v", acc.Choices)
		}
		if acc.Usage.CompletionTokens != int64(len(text)) || acc.Usage.TotalTokens != acc.Usage.PromptTokens+int64(len(text)) {
			t.Errorf("usage %+v", acc.Usage)
		}
		if chunks < len(text)-8 { // 😀 and the like come as one
			t.Errorf("%d chunks for %d tokens", chunks, len(text))
		}
	})
	t.Run("completion", func(t *testing.T) {
		got, err := client.Completions.New(t.Context(), openai.CompletionNewParams{
			Model: testModel, Prompt: openai.CompletionNewParamsPromptUnion{OfArrayOfStrings: []string{"a", "b"}}, MaxTokens: openai.Int(100),
		})
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Choices) != 2 || got.Choices[0].Text != text || got.Usage.PromptTokens != 2 {
			t.Errorf("got %s", got.RawJSON())
		}
	})
	t.Run("completion stream", func(t *testing.T) {
		stream := client.Completions.NewStreaming(t.Context(), openai.CompletionNewParams{
			Model: testModel, Prompt: openai.CompletionNewParamsPromptUnion{OfArrayOfTokens: []int64{1, 2, 3}}, MaxTokens: openai.Int(100),
			StreamOptions: openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)},
		})
		var got strings.Builder
		var usage openai.CompletionUsage
		for stream.Next() {
			for _, c := range stream.Current().Choices {
				got.WriteString(c.Text)
			}
			usage = stream.Current().Usage
		}
		if err := stream.Err(); err != nil || got.String() != text || usage.PromptTokens != 3 || usage.CompletionTokens != int64(len(text)) {
			t.Errorf("%q, usage %+v, %v", got.String(), usage, err)
		}
	})
	t.Run("models", func(t *testing.T) {
		list, err := client.Models.List(t.Context())
		if err != nil || len(list.Data) != 1 || list.Data[0].ID != testModel || list.Data[0].Created == 0 {
			t.Errorf("%+v, %v", list, err)
		}
		got, err := client.Models.Get(t.Context(), testModel)
		if err != nil || got.ID != testModel || string(got.Object) != "model" {
			t.Errorf("%+v, %v", got, err)
		}
	})
	t.Run("error", func(t *testing.T) {
		_, err := client.Chat.Completions.New(t.Context(), openai.ChatCompletionNewParams{Model: testModel, Messages: messages, Temperature: openai.Float(3)})
		var api *openai.Error
		if !errors.As(err, &api) || api.StatusCode != 400 || api.Param != "temperature" || api.Type != "invalid_request_error" || api.Code != "invalid_value" {
			t.Errorf("got %#v", err)
		}
		_, err = client.Models.Get(t.Context(), "other")
		if !errors.As(err, &api) || api.StatusCode != 404 || api.Code != "model_not_found" {
			t.Errorf("got %#v", err)
		}
	})
}

// The comments of a silent stream do not disturb it.
func TestOfficialClientSkipsKeepAlive(t *testing.T) {
	w := newWorld(t)
	release := make(chan struct{})
	w.fake("worker-1", say("abc", hold(1, release)))
	f := w.frontend(func(f *Frontend) { f.limits.keepAlive = time.Millisecond }).waitModel(1)
	client := f.official()
	stream := client.Completions.NewStreaming(t.Context(), openai.CompletionNewParams{
		Model: testModel, Prompt: openai.CompletionNewParamsPromptUnion{OfString: openai.String("x")},
	})
	time.AfterFunc(20*time.Millisecond, func() { close(release) })
	text := ""
	for stream.Next() {
		text += stream.Current().Choices[0].Text
	}
	if err := stream.Err(); text != "abc" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
}

func TestOfficialClientSeesErrorInStream(t *testing.T) {
	w := newWorld(t)
	w.fake("worker-1", say("abcdef", failAt(3, &requestplane.RemoteError{Kind: requestplane.KindInternal, Message: "secret detail"})))
	f := w.frontend().waitModel(1)
	client := f.official()
	stream := client.Chat.Completions.NewStreaming(t.Context(), openai.ChatCompletionNewParams{
		Model: testModel, Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("Hi")},
	})
	text := ""
	for stream.Next() {
		text += stream.Current().Choices[0].Delta.Content
	}
	if err := stream.Err(); text != "abc" || err == nil || !strings.Contains(err.Error(), "engine failed") || strings.Contains(err.Error(), "secret") {
		t.Errorf("%q, %v", text, err)
	}
}
