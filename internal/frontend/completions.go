package frontend

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/dynctl/dynctl/internal/metrics"
)

// completionRequest is the body of POST /v1/completions.
type completionRequest struct {
	params
	prompt json.RawMessage
	echo   bool
}

// defaultCompletionTokens is OpenAI's limit when a client sets none.
const defaultCompletionTokens = 16

func (q *completionRequest) fields() fields {
	f := q.sharedFields()
	f["prompt"] = rawField(&q.prompt)
	f["echo"] = flag(&q.echo)
	f["suffix"] = only(`""`)
	f["logprobs"] = only("0", "false")
	f["best_of"] = only("1")
	return f
}

// prompts reads the four forms of a prompt: a text, several texts, token ids, or
// several lists of token ids.
func (q *completionRequest) prompts(m *servedModel) ([][]uint32, *apiError) {
	var one string
	var many []string
	var ids []uint32
	var lists [][]uint32
	var prompts [][]uint32
	switch {
	case len(q.prompt) == 0:
		return nil, invalid("prompt", "Missing required parameter: 'prompt'.").withCode("missing_required_parameter")
	case json.Unmarshal(q.prompt, &one) == nil:
		prompts = [][]uint32{m.proc.EncodePrompt(one)}
	case strings.TrimSpace(string(q.prompt)) == "[]":
	case json.Unmarshal(q.prompt, &many) == nil:
		for _, p := range many {
			prompts = append(prompts, m.proc.EncodePrompt(p))
		}
	case json.Unmarshal(q.prompt, &ids) == nil:
		prompts = [][]uint32{ids}
	case json.Unmarshal(q.prompt, &lists) == nil:
		prompts = lists
	default:
		return nil, invalid("prompt", "Invalid type for 'prompt': expected a string, a list of strings, a list of token ids, or a list of such lists.")
	}
	if len(prompts) == 0 {
		return nil, invalid("prompt", "Invalid value for 'prompt': the list is empty.")
	}
	if n := len(prompts) * q.choices(); n > maxChoices {
		return nil, invalid("prompt", "Invalid value for 'prompt': %d prompts times n are %d answers, at most %d are allowed.", len(prompts), n, maxChoices)
	}
	for i, p := range prompts {
		if len(p) == 0 {
			return nil, invalid("prompt", "Invalid value for 'prompt': prompt %d is empty.", i)
		}
		for _, id := range p {
			if int(id) >= m.proc.VocabSize() {
				return nil, invalid("prompt", "Invalid value for 'prompt': %d is not a token of this model.", id)
			}
		}
	}
	return prompts, nil
}

func (f *Frontend) completions(w http.ResponseWriter, r *http.Request) {
	var q completionRequest
	f.serve(w, r, metrics.EndpointCompletions, q.fields(), &q.params, func(m *servedModel) (answerer, []*choice, []int, *apiError) {
		prompts, err := q.prompts(m)
		if err != nil {
			return nil, nil, nil, err
		}
		choices, err := q.makeChoices(m, prompts, defaultCompletionTokens)
		if err != nil {
			return nil, nil, nil, err
		}
		a := &completionAnswer{id: newID("cmpl-"), model: q.model, created: time.Now().Unix(), echo: make([]string, len(choices))}
		var lengths []int
		for _, p := range prompts {
			lengths = append(lengths, len(p))
		}
		if q.echo {
			for i, c := range choices {
				a.echo[i] = m.proc.Decode(prompts[c.prompt])
			}
		}
		return a, choices, lengths, nil
	})
}

// completionAnswer writes a text completion, streamed or whole.
type completionAnswer struct {
	id, model string
	created   int64
	echo      []string // text that comes before each choice
	text      []strings.Builder
	finish    []string
}

type completionChoice struct {
	Index        int       `json:"index"`
	Text         string    `json:"text"`
	Logprobs     *struct{} `json:"logprobs"`
	FinishReason *string   `json:"finish_reason"`
}

type completionBody struct {
	ID                string             `json:"id"`
	Object            string             `json:"object"`
	Created           int64              `json:"created"`
	Model             string             `json:"model"`
	SystemFingerprint *string            `json:"system_fingerprint"`
	Choices           []completionChoice `json:"choices"`
	Usage             *usage             `json:"usage,omitempty"`
}

func (a *completionAnswer) body(choices ...completionChoice) completionBody {
	if choices == nil {
		choices = []completionChoice{}
	}
	return completionBody{ID: a.id, Object: "text_completion", Created: a.created, Model: a.model, Choices: choices}
}

func (a *completionAnswer) events(d delta) []any {
	text := a.echo[d.index] + d.text
	a.echo[d.index] = ""
	c := completionChoice{Index: d.index, Text: text}
	if d.finish != "" {
		c.FinishReason = &d.finish
	}
	return []any{a.body(c)}
}

func (a *completionAnswer) usageEvent(u usage) any {
	b := a.body()
	b.Usage = &u
	return b
}

func (a *completionAnswer) gather(d delta) {
	if a.text == nil {
		a.text, a.finish = make([]strings.Builder, len(a.echo)), make([]string, len(a.echo))
	}
	a.text[d.index].WriteString(d.text)
	a.finish[d.index] = d.finish
}

func (a *completionAnswer) whole(u usage) any {
	choices := make([]completionChoice, len(a.echo))
	for i := range choices {
		choices[i] = completionChoice{Index: i, Text: a.echo[i] + a.text[i].String(), FinishReason: &a.finish[i]}
	}
	b := a.body(choices...)
	b.Usage = &u
	return b
}
