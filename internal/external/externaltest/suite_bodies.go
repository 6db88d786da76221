package externaltest

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
)

// messages are those of a chat, in a form that encoding/json would change.
const messages = `[ {"role":"user","content":"h\u00e9llo \u003c 9007199254740993"} ]`

func (s Setup) bodies(t *testing.T) {
	d, e := s.start(t, Options{Comments: true}, nil)
	want := Text(Continue(Hash(512), PromptOf([]byte(messages)), 6))
	text := Text(Continue(Hash(512), PromptOf([]byte("once")), 6))
	for name, test := range map[string]struct {
		api    protocol.API
		body   string
		stream bool
		usage  bool
		text   string
	}{
		"chat":            {protocol.APIChat, `{"model":"served","messages":` + messages + `,"max_tokens": 6}`, false, true, want},
		"chat stream":     {protocol.APIChat, `{"messages":` + messages + `,"stream":true,"max_completion_tokens":6,"model":"x"}`, true, false, want},
		"chat with usage": {protocol.APIChat, `{"messages":` + messages + `,"stream" : true,"stream_options":{"include_usage":true},"max_tokens":6}`, true, true, want},
		"chat with null":  {protocol.APIChat, `{"messages":` + messages + `,"stream":true,"stream_options":null,"max_tokens":6}`, true, false, want},
		"text":            {protocol.APICompletions, `{"prompt":"once","max_tokens":6}`, false, true, text},
		"text stream":     {protocol.APICompletions, `{"prompt":"once","max_tokens":6,"stream":true,"temperature":0.70}`, true, false, text},
	} {
		t.Run(name, func(t *testing.T) {
			a := collect(t, e, AskBody(test.api, test.body))
			got, usages := readRaw(t, a.Raw)
			if got != test.text {
				t.Errorf("text %q, want %q", got, test.text)
			}
			if (usages > 0) != test.usage {
				t.Errorf("%d chunks have usage; the client asked for it: %v", usages, test.usage)
			}
			if test.stream != (len(a.Raw) > 1) {
				t.Errorf("%d chunks; the client asked for a stream: %v", len(a.Raw), test.stream)
			}
			if a.Finish != protocol.FinishLength || a.Usage == nil || a.Usage.CompletionTokens != 6 || a.Usage.CachedTokens != cachedOf(a.Usage.PromptTokens) {
				t.Errorf("finish %q, usage %+v", a.Finish, a.Usage)
			}
			sent := string(d.Last(t).Body)
			if !strings.Contains(sent, `"model":"m"`) || strings.Count(sent, `"model"`) != 1 {
				t.Errorf("the model is another one: %s", sent)
			}
			if test.api == protocol.APIChat && !strings.Contains(sent, `"messages":`+messages) {
				t.Errorf("the messages have changed: %s", sent)
			}
			if path := d.Last(t).Path; path != "/v1/"+string(test.api) {
				t.Errorf("sent to %s", path)
			}
		})
	}
	t.Run("byte for byte", func(t *testing.T) {
		a := collect(t, e, AskBody(protocol.APIChat, `{"messages":`+messages+`,"max_tokens":2,"stream":true}`))
		if !strings.Contains(a.Raw[0], `"zz_future":9007199254740993`) || !strings.Contains(a.Raw[0], `"reasoning_content":""`) {
			t.Errorf("the chunk %s", a.Raw[0])
		}
	})
}

// readRaw returns the text of an answer, and how many of its objects have usage.
func readRaw(t testing.TB, raw []string) (text string, usages int) {
	t.Helper()
	for _, chunk := range raw {
		var c struct {
			Choices []struct {
				Text    string `json:"text"`
				Delta   struct{ Content string }
				Message struct{ Content string }
			} `json:"choices"`
			Usage json.RawMessage `json:"usage"`
		}
		if err := json.Unmarshal([]byte(chunk), &c); err != nil {
			t.Fatalf("%s: %v", chunk, err)
		}
		for _, choice := range c.Choices {
			text += choice.Text + choice.Delta.Content + choice.Message.Content
		}
		if c.Usage != nil {
			usages++
		}
	}
	return text, usages
}

// forbidden are fields by which a client could send a server somewhere else.
const forbidden = `"kv_transfer_params":{"do_remote_prefill":true,"remote_host":"evil"},"KV_Transfer_Params":{"remote_host":"evil"},` +
	`"\u006bv_transfer_params":{"remote_host":"evil"},"ec_transfer_params":{"peer_host":"evil"},"disaggregated_params":{"ctx_info_endpoint":"evil"},` +
	`"bootstrap_host":"evil","bootstrap_port":1,"bootstrap_room":2,"bootstrap_pair_key":"evil","rid":"evil","request_id":"evil","data_parallel_rank":7,` +
	`"routed_dp_rank":7,"disagg_prefill_dp_rank":7,"prompt_token_ids":[666],"lora_request":{"lora_path":"evil"}`

func (s Setup) controlFields(t *testing.T) {
	d, e := s.start(t, Options{}, nil)
	for _, body := range []string{
		`{"messages":[],"max_tokens":2,` + forbidden + `}`,
		`{` + forbidden + `,"messages":[],"max_tokens":2,"stream":true}`,
	} {
		collect(t, e, AskBody(protocol.APIChat, body))
		sent := d.Last(t)
		for _, word := range []string{"evil", "bootstrap_", "dp_rank", "data_parallel", "[666", "transfer_params", "disaggregated_params"} {
			if strings.Contains(strings.ToLower(string(sent.Body)), word) {
				t.Errorf("the server got %s", sent.Body)
			}
		}
	}
	n := len(d.Seen())
	for _, body := range []string{
		`{"messages":[],"max_tokens":2,"max_tokens":3}`,
		`{"messages":[],"model":"m","Model":"n"}`,
		`{"messages":[],"stream":true,"stream":false}`,
		`{"messages":[]`, `[]`, `null`, ``, `{"messages":[]} {}`,
	} {
		_, err := Collect(t.Context(), t, e, AskBody(protocol.APIChat, body))
		Kind(t, err, requestplane.KindInvalidArgument)
	}
	if more := len(d.Seen()) - n; more != 0 {
		t.Errorf("%d broken bodies reached the server", more)
	}
	_, err := Collect(t.Context(), t, e, AskBody("../admin", `{"messages":[]}`))
	Kind(t, err, requestplane.KindInvalidArgument)
}
