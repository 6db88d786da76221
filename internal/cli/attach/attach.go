package attach

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/cli/command"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/session"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
)

// Options attach one service and hold it.
type Options struct {
	Session *session.Session
	Service cluster.Service
	Node    string // holds it; empty: the one of this machine
	Model   cluster.ServiceModel
}

// Command makes dynctl attach.
func Command(a *command.App) *cobra.Command {
	o := &Options{}
	cmd := a.Command(command.Verb{
		Use: "attach [endpoint] <url>", Short: "Let a service behind a URL answer an endpoint, or be the engine of a model", Group: command.GroupRun, Changes: true,
		Long: `The service may be a program in any language. A dynamod of this machine holds a lease for
it, sends it each request as a POST with JSON, and passes the answer on. The service is in
discovery while it is ready: while it accepts connections, or answers --ready-url with 200.
It leaves when this command ends; requests that run then have 30 s to end.

An answer is one JSON document (application/json), or lines (application/x-ndjson) of
{"item":...}, with {"end":true} or {"error":{"kind":"overloaded","message":"..."}} at the end.
With --model, requests hold text, token_ids and max_tokens, and items have text or token_ids.`,
		Examples: []string{
			"dynctl attach dyn://dynamo.backend.hello http://127.0.0.1:9000/hello",
			"dynctl attach --model parrot http://127.0.0.1:9000/llm --ready-url http://127.0.0.1:9000/ready",
			"dynctl attach --model llama --model-dir ~/models/llama http://127.0.0.1:9000/generate",
		},
		Args: cobra.RangeArgs(1, 2),
		See:  []string{"dynctl call", "dynctl get endpoints"},
		Options: func(s *session.Session, args []string) command.Runner {
			o.Session, o.Service.URL = s, args[len(args)-1]
			o.Service.Endpoint = strings.Join(args[:len(args)-1], "")
			return o
		},
	})
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&o.Service.ReadyURL, "ready-url", "", "ask here whether the service is ready; without it, it is when it accepts connections")
	fs.StringVar(&o.Model.Name, "model", "", "name of the model whose engine the service is, in place of an endpoint")
	fs.StringVar(&o.Model.Dir, "model-dir", "", "folder with its tokenizer and chat template; without it, bytes are tokens")
	command.Count(fs, &o.Model.ContextLength, "context-length", 0, "most tokens of a prompt and its answer; 0 means 4096")
	command.Count(fs, &o.Model.Concurrent, "concurrent", 0, "how many requests the service handles well at a time; 0 means 64")
	fs.StringVar(&o.Node, "node", "", "node that holds the service; it must reach the URL")
	_ = cmd.MarkFlagDirname("model-dir") // fails for unknown flags only
	return cmd
}

// again is the pause before a lost service is attached anew.
const again = 2 * time.Second

// Run attaches the service until ctx ends.
func (o *Options) Run(ctx context.Context) error {
	if err := o.complete(); err != nil {
		return err
	}
	action := "cannot attach " + o.Service.URL
	c, err := o.Session.Connect(ctx, action)
	if err != nil {
		return err
	}
	for attached := false; ; {
		err := o.hold(ctx, c, func(st cluster.ServiceState) error {
			attached = true
			return o.tell(st)
		})
		var out *outputError
		switch {
		case errors.As(err, &out):
			return out.err
		case ctx.Err() != nil && attached:
			o.Session.Out.Note("%s has left the cluster", o.what())
			return nil
		case ctx.Err() != nil:
			return &exit.Stopped{Text: "stopped attaching " + o.Service.URL, Err: context.Cause(ctx)}
		case !attached || errors.Is(err, client.ErrServiceRefused):
			return &exit.Failure{Action: action, Err: err}
		}
		o.Session.Out.Note("the node that held %s is gone (%v): trying again", o.what(), err)
		select {
		case <-ctx.Done():
		case <-time.After(again):
		}
	}
}

// complete checks the options against each other.
func (o *Options) complete() error {
	given := o.Session.Given("model-dir") || o.Session.Given("context-length") || o.Session.Given("concurrent")
	switch {
	case (o.Service.Endpoint == "") == (o.Model.Name == ""):
		return &exit.UsageError{Text: "name either an endpoint or --model", Tries: []string{"dynctl attach dyn://dynamo.backend.hello " + o.Service.URL}}
	case o.Model.Name == "" && given:
		return &exit.UsageError{Text: "--model-dir, --context-length and --concurrent belong to --model"}
	case o.Model.Name == "":
		e, err := cluster.ParseEndpoint(o.Service.Endpoint)
		if err != nil {
			return &exit.UsageError{Text: err.Error()}
		}
		o.Service.Endpoint = e.String()
		return nil
	}
	if o.Model.Dir != "" {
		o.Model.Dir = o.Session.Env.Path(o.Model.Dir)
	}
	o.Service.Model = &o.Model
	return nil
}

func (o *Options) what() string {
	if o.Service.Model != nil {
		return "model " + o.Model.Name
	}
	return o.Service.Endpoint
}

// hold attaches the service once, until the node or ctx ends.
func (o *Options) hold(ctx context.Context, c *client.Cluster, each func(cluster.ServiceState) error) error {
	v, err := c.View(ctx)
	if err != nil {
		return err
	}
	node, err := o.node(v)
	if err != nil {
		return err
	}
	return c.Hold(ctx, v, node, o.Service, each)
}

// node returns the id of the node that is to hold the service.
func (o *Options) node(v client.View) (string, error) {
	if o.Node == "" {
		if n, ok := v.NodeHere(); ok {
			return n.ID, nil
		}
		return "", errors.New("no node runs on this machine: name one that reaches the URL with --node")
	}
	for _, n := range v.Nodes {
		if n.Name == o.Node || n.ID == o.Node {
			return n.ID, nil
		}
	}
	return "", fmt.Errorf("there is no node %s", o.Node)
}

// outputError is an error of standard output.
type outputError struct{ err error }

func (e *outputError) Error() string { return e.err.Error() }

// tell prints what has become of the service.
func (o *Options) tell(st cluster.ServiceState) error {
	out := o.Session.Out
	if !out.Prose() {
		if err := json.NewEncoder(out.Streams.Data()).Encode(st); err != nil {
			return &outputError{err}
		}
		return nil
	}
	switch {
	case st.Ready:
		out.Note("%s is served as instance %s, until Ctrl-C", o.what(), st.Instance)
	default:
		out.Note("%s is not served: %s", o.what(), st.Reason)
	}
	return nil
}
