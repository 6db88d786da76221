package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/openai"
)

// frontend returns a client of the cluster's first HTTP frontend, or of the one at
// address when that is not empty, until close. action begins the message when there
// is none.
func (inv *invocation) frontend(ctx context.Context, address, action string) (*openai.Client, error) {
	if address != "" {
		c, err := inv.openai(address)
		if err != nil {
			return nil, &usageError{text: "--url: " + err.Error()}
		}
		return c, nil
	}
	c, err := inv.connect(ctx, action)
	if err != nil {
		return nil, err
	}
	v, err := c.View(ctx)
	if err != nil {
		return nil, &failure{action: action, err: err}
	}
	urls := v.Frontends()
	if len(urls) == 0 {
		return nil, inv.noFrontend(action, v)
	}
	found, err := inv.openai(urls[0])
	if err != nil {
		return nil, &failure{action: action, err: fmt.Errorf("address of the frontend: %w", err)}
	}
	return found, nil
}

func (inv *invocation) openai(address string) (*openai.Client, error) {
	c, err := openai.New(address, inv.variables().Get("DYNAMOD_FRONTEND_API_KEY"))
	if err != nil {
		return nil, err
	}
	inv.open = append(inv.open, closing(c.Close))
	return c, nil
}

// closing is an io.Closer that cannot fail.
type closing func()

func (c closing) Close() error { c(); return nil }

func (inv *invocation) noFrontend(action string, v client.View) error {
	err := fmt.Errorf("no node of cluster %s has an HTTP frontend", inv.cfg.Cluster)
	if len(v.Nodes) == 0 {
		err = fmt.Errorf("no node of cluster %s is up", inv.cfg.Cluster)
	}
	return &failure{action: action, err: err, code: exitUnreachable, tries: []string{"dynctl ps --nodes -o wide", "--url http://host:port"}}
}

// errSilent is returned when a frontend does not say anything for too long.
var errSilent = errors.New("no answer in time")

// frontendError makes an error of a frontend one that says what to do next.
func (inv *invocation) frontendError(action string, c *openai.Client, err error) error {
	f := &failure{action: action, err: err}
	var said *openai.Error
	known := errors.As(err, &said)
	switch {
	case errors.Is(err, openai.ErrUnreachable):
		f.err = fmt.Errorf("%s: %w", c.URL(), err)
		if strings.Contains(err.Error(), c.URL()) {
			f.err = err
		}
		f.code, f.tries = exitUnreachable, []string{"dynctl doctor", "dynctl ps --nodes"}
	case errors.Is(err, errSilent):
		f.tries = []string{"--timeout 10m", "dynctl top   to see who waits for what"}
	case errors.Is(err, openai.ErrBroken):
		f.tries = []string{"dynctl ps", "dynctl logs"}
	case errors.Is(err, openai.ErrProtocol):
		f.err = fmt.Errorf("%s: %w", c.URL(), err)
	case !known:
	case said.Status == 401 || said.Status == 403:
		f.tries = []string{"export DYNAMOD_FRONTEND_API_KEY=...   the key that the frontend was started with"}
	case said.Temporary():
		f.tries = []string{"dynctl ps", "--timeout 10m, to wait longer"}
	case said.Code == "context_length_exceeded":
		f.tries = []string{"a shorter prompt, or a smaller --max-tokens"}
	}
	return f
}

// servedModel chooses the model to talk to: want, or the only one that is served.
func (inv *invocation) servedModel(ctx context.Context, c *openai.Client, action, want string, wait time.Duration) (openai.Model, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, wait, errSilent)
	defer cancel()
	models, err := c.Models(ctx)
	if err != nil {
		return openai.Model{}, inv.frontendError(action, c, err)
	}
	var ids []string
	for _, m := range models {
		if m.ID == want || want == "" && len(models) == 1 {
			return m, nil
		}
		ids = append(ids, m.ID)
	}
	switch {
	case len(models) == 0:
		return openai.Model{}, &failure{action: action, err: fmt.Errorf("%s serves no model at present", c.URL()), tries: []string{"dynctl ps", "dynctl up"}}
	case want == "":
		return openai.Model{}, &failure{action: action, err: fmt.Errorf("%s serves several models", c.URL()), facts: []string{"served: " + strings.Join(ids, ", ")}, tries: []string{inv.cmd.CommandPath() + " --model " + shellQuote(ids[0])}, code: exitUsage}
	}
	return openai.Model{}, &failure{
		action: action, err: fmt.Errorf("%s does not serve the model %s", c.URL(), want), facts: []string{"served: " + strings.Join(ids, ", ")},
		tries: []string{inv.cmd.CommandPath() + " --model " + shellQuote(ids[0])},
	}
}

// completeModels completes the model that the cluster serves.
func (f *factory) completeModels(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var out []cobra.Completion
	f.lookAt(cmd, func(v client.View) {
		if v.Topology != nil && v.Topology.Model.Name != "" {
			out = append(out, v.Topology.Model.Name)
		}
	})
	return out, cobra.ShellCompDirectiveNoFileComp
}
