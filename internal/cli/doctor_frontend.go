package cli

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/openai"
)

// frontendFindings checks every frontend of a cluster; with several, each finding
// begins with the address.
func (o *doctorCommand) frontendFindings(ctx context.Context, inv *invocation, v client.View) []finding {
	urls := v.Frontends()
	var checks []check
	if len(urls) == 0 {
		for _, name := range frontendChecks() {
			checks = append(checks, check{name, groupFrontend, func(context.Context) finding { return skipped("no node has an HTTP frontend") }})
		}
		return examine(ctx, o.timeout, checks)
	}
	model := ""
	if v.Topology != nil && v.Topology.Prefill+v.Topology.Decode > 0 {
		model = v.Topology.Model.Name
	}
	for _, url := range urls {
		c, err := openai.New(url, inv.variables().Get("DYNAMOD_FRONTEND_API_KEY"))
		ask := func(f func(context.Context, *openai.Client, string) finding) func(context.Context) finding {
			return func(ctx context.Context) finding {
				if err != nil {
					return bad("dynctl ps --nodes -o wide", "%v", err)
				}
				out := f(ctx, c, model)
				if !strings.Contains(out.Found, c.URL()) {
					out.Found = c.URL() + " " + out.Found
				}
				return out.with("url", c.URL())
			}
		}
		if err == nil {
			defer c.Close()
		}
		checks = append(checks,
			check{frontendChecks()[0], groupFrontend, ask(checkHealth)},
			check{frontendChecks()[1], groupFrontend, ask(checkModels)},
			check{frontendChecks()[2], groupFrontend, ask(checkAnswer)},
		)
	}
	return examine(ctx, o.timeout, checks)
}

// refusal is the finding about an error of a frontend.
func refusal(err error) finding {
	var said *openai.Error
	switch {
	case errors.As(err, &said) && (said.Status == http.StatusUnauthorized || said.Status == http.StatusForbidden):
		return poor("export DYNAMOD_FRONTEND_API_KEY=...   the key that the frontend was started with", "asks for an API key: %v", err)
	case errors.As(err, &said) && said.Temporary():
		return bad("dynctl ps", "%v", err)
	case errors.Is(err, openai.ErrUnreachable):
		return bad("dynctl logs, and dynctl ps --nodes", "%v", err)
	}
	return bad("dynctl logs", "%v", err)
}

func checkHealth(ctx context.Context, c *openai.Client, _ string) finding {
	status, err := c.Health(ctx)
	if err != nil {
		return refusal(err)
	}
	return good("says it is %s", orDash(status)).with("status", status)
}

func checkModels(ctx context.Context, c *openai.Client, model string) finding {
	models, err := c.Models(ctx)
	if err != nil {
		return refusal(err)
	}
	ids := []string{}
	found := false
	for _, m := range models {
		ids = append(ids, m.ID)
		found = found || m.ID == model
	}
	f := good("lists %s", nameList(ids))
	switch {
	case model == "" && len(ids) == 0:
		f = skipped("lists no model, and none is declared")
	case model != "" && !found:
		f = bad("dynctl ps", "does not list %s; it lists %s", model, nameList(ids))
	}
	return f.with("models", ids)
}

// checkAnswer asks for two tokens, the least that shows both the first and a next one.
func checkAnswer(ctx context.Context, c *openai.Client, model string) finding {
	if model == "" {
		return skipped("no model is declared")
	}
	cold := 0.0
	a, err := c.Chat(ctx, openai.Request{
		Model: model, Messages: []openai.Message{{Role: "user", Content: "Hello"}}, MaxTokens: 2, Temperature: &cold,
	}, func(openai.Delta) error { return nil })
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return bad("dynctl top, or --timeout 1m", "no answer in time")
	case err != nil:
		return refusal(err)
	}
	f := good("answers")
	if a.TTFT > 0 {
		f = good("answers, ttft %s", milliText(a.TTFT)).with("ttft_ms", milliseconds(a.TTFT))
	}
	return f.with("total_ms", milliseconds(a.Took))
}
