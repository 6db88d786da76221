package doctor

import (
	"context"
	"strings"

	"github.com/dynctl/dynctl/internal/cli/doctor/judge"
	"github.com/dynctl/dynctl/internal/cli/frontend"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/openai"
)

// frontendFindings checks every frontend of a cluster; with several, each finding
// begins with the address.
func (o *Options) frontendFindings(ctx context.Context, v client.View) []judge.Finding {
	urls := v.Frontends()
	var checks []check
	if len(urls) == 0 {
		for _, name := range frontendChecks() {
			checks = append(checks, check{name, groupFrontend, func(context.Context) judge.Finding { return judge.Skipped("no node has an HTTP frontend") }})
		}
		return examine(ctx, o.Timeout, checks)
	}
	model := ""
	if v.Topology != nil && v.Topology.Workers() > 0 {
		model = v.Topology.Model.Name
	}
	for _, url := range urls {
		c, err := frontend.New(o.Session, url)
		ask := func(f func(context.Context, *openai.Client, string) judge.Finding) func(context.Context) judge.Finding {
			return func(ctx context.Context) judge.Finding {
				if err != nil {
					return judge.Bad("dynctl ps --nodes -o wide", "%v", err)
				}
				out := f(ctx, c, model)
				if !strings.Contains(out.Found, c.URL()) {
					out.Found = c.URL() + " " + out.Found
				}
				return out.With("url", c.URL())
			}
		}
		checks = append(checks,
			check{frontendChecks()[0], groupFrontend, ask(checkHealth)},
			check{frontendChecks()[1], groupFrontend, ask(checkModels)},
			check{frontendChecks()[2], groupFrontend, ask(checkAnswer)},
		)
	}
	return examine(ctx, o.Timeout, checks)
}

func checkHealth(ctx context.Context, c *openai.Client, _ string) judge.Finding {
	return judge.Health(c.Health(ctx))
}

func checkModels(ctx context.Context, c *openai.Client, model string) judge.Finding {
	models, err := c.Models(ctx)
	return judge.Models(models, err, model)
}

// checkAnswer asks for two tokens, the least that shows both the first and a next one.
func checkAnswer(ctx context.Context, c *openai.Client, model string) judge.Finding {
	if model == "" {
		return judge.Skipped("no model is declared")
	}
	cold := 0.0
	return judge.Answer(c.Chat(ctx, openai.Request{
		Model: model, Messages: []openai.Message{{Role: "user", Content: "Hello"}}, MaxTokens: 2, Temperature: &cold,
	}, func(openai.Delta) error { return nil }))
}
