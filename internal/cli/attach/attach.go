package attach

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/cli/command"
	"github.com/dynctl/dynctl/internal/cli/complete"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/session"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
)

// Options attach one service and hold it, or make a server of another engine a worker.
type Options struct {
	serverOptions

	Session *session.Session
	Service cluster.Service
	Node    string // holds it; empty: the one of this machine
	Model   cluster.ServiceModel
}

// Command makes dynctl attach.
func Command(a *command.App) *cobra.Command {
	o := &Options{}
	cmd := a.Command(command.Verb{
		Use: "attach [endpoint] <url>", Short: "Let a server or a service that runs already join", Group: command.GroupRun, Changes: true,
		Long: `With --engine, a running server of that engine becomes a worker, until dynctl detach.
Otherwise the URL is a service in any language, which answers an endpoint or, with --model,
computes for a model until this command ends. docs/sdk.md describes its requests.`,
		Examples: []string{
			"dynctl attach http://gpu-3:8001 --engine vllm --role decode --kv-events tcp://gpu-3:5557",
			"dynctl attach dyn://dynamo.backend.hello http://127.0.0.1:9000/hello",
			"dynctl attach --model llama --model-dir ~/models/llama http://127.0.0.1:9000/generate",
		},
		Args: cobra.RangeArgs(1, 2),
		See:  []string{"dynctl detach", "dynctl call", "dynctl get endpoints"},
		Options: func(s *session.Session, args []string) command.Runner {
			o.Session, o.Service.URL = s, args[len(args)-1]
			o.Service.Endpoint = strings.Join(args[:len(args)-1], "")
			return o
		},
	})
	fs := cmd.Flags()
	fs.SortFlags = false
	server := &o.server.Engine.Server
	fs.StringVar(&o.Model.Name, "model", "", "name of the model that it serves")
	fs.StringVar(&o.Model.Dir, "model-dir", "", "folder with the model's tokenizer and chat template")
	fs.StringVar(&o.Node, "node", "", "node that holds it; it must reach the URL")
	fs.StringVar(&o.server.Engine.Backend, "engine", "", "the server is "+strings.Join(cluster.ExternalBackends(), ", "))
	fs.StringVar(&o.role, "role", string(cluster.RoleDecode), "prefill, decode or encode")
	fs.StringVar(&server.Events, "kv-events", "", "where it publishes KV events, as tcp://host:port, or off")
	fs.StringVar(&server.Connector, "connector", "", "how it exchanges KV, or none (default: the engine's usual way)")
	fs.StringVar(&server.Replay, "kv-replay", "", "where missed KV events are asked for, as tcp://host:port")
	fs.StringVar(&server.Model, "served-model", "", "name by which it knows the model (default: --model)")
	fs.StringVar(&server.Host, "host", "", "where other servers reach it to exchange KV (default: where it says)")
	command.Count(fs, &server.BootstrapPort, "bootstrap-port", 0, "port where servers meet: of SGLang, and of Mooncake; 0 means the usual one")
	fs.StringVar(&server.Pair, "pair", "", "exchange KV only with servers of the same text")
	fs.StringVar(&server.KeyFile, "api-key-file", "", "file on the node with its API key")
	fs.StringVar(&server.CAFile, "ca-file", "", "file on the node with certificates to check its own against")
	fs.StringVar(&o.Service.ReadyURL, "ready-url", "", "ask here if the service is ready (default: if it accepts connections)")
	command.Count(fs, &o.Model.ContextLength, "context-length", 0, "most tokens of prompt and answer of the service; 0 means 4096")
	command.Count(fs, &o.Model.Concurrent, "concurrent", 0, "requests that the service handles well at a time; 0 means 64")
	o.AddFlags(fs, 5*time.Minute, "how long to wait for a server", "it is declared")
	command.Grouped(fs, "Flags", "timeout", "no-wait", "progress")
	command.Rare(fs, "kv-replay", "served-model", "host", "bootstrap-port", "pair")
	_ = cmd.MarkFlagDirname("model-dir") // fails for unknown flags only
	_ = cmd.RegisterFlagCompletionFunc("engine", complete.Words(cluster.ExternalBackends()...))
	_ = cmd.RegisterFlagCompletionFunc("connector", connectors)
	_ = cmd.RegisterFlagCompletionFunc("kv-events", complete.Words("tcp://", cluster.EventsOff))
	_ = cmd.RegisterFlagCompletionFunc("kv-replay", complete.Words("tcp://"))
	_ = cmd.RegisterFlagCompletionFunc("role", complete.Words(string(cluster.RolePrefill), string(cluster.RoleDecode), string(cluster.RoleEncode)))
	return cmd
}

// connectors completes those of the engine that was given, or of all.
func connectors(cmd *cobra.Command, _ []string, _ string) (out []cobra.Completion, _ cobra.ShellCompDirective) {
	backends := cluster.ExternalBackends()
	if given := cmd.Flag("engine").Value.String(); given != "" {
		backends = []string{given}
	}
	for _, b := range backends {
		for _, name := range cluster.ExternalConnectors(b) {
			if !slices.Contains(out, name) {
				out = append(out, name)
			}
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// again is the pause before a lost service is attached anew.
const again = 2 * time.Second

// Run attaches the service until ctx ends.
func (o *Options) Run(ctx context.Context) error {
	if o.Session.Given("engine") {
		return o.serve(ctx)
	}
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

// serve makes a server of another engine a worker.
func (o *Options) serve(ctx context.Context) error {
	for _, flag := range []string{"ready-url", "context-length", "concurrent"} {
		if o.Session.Given(flag) {
			return &exit.UsageError{Text: "--" + flag + " is for services: a server of an engine says that itself"}
		}
	}
	if o.Service.Endpoint != "" {
		return &exit.UsageError{Text: "--engine takes a URL alone: the worker's endpoint follows from its role"}
	}
	role, err := cluster.ParseRole(o.role)
	if err != nil {
		return &exit.UsageError{Text: "--role: " + err.Error()}
	}
	o.session, o.server.Role, o.server.Node, o.server.Model.Name = o.Session, role, o.Node, o.Model.Name
	o.server.Engine.Server.URL = o.Service.URL
	for _, path := range []struct {
		to   *string
		from string
	}{
		{&o.server.Model.Path, o.Model.Dir}, {&o.server.Engine.Server.KeyFile, o.server.Engine.Server.KeyFile}, {&o.server.Engine.Server.CAFile, o.server.Engine.Server.CAFile},
	} {
		if path.from != "" {
			*path.to = o.Session.Env.Path(path.from)
		}
	}
	return o.run(ctx)
}

// complete checks the options against each other.
func (o *Options) complete() error {
	for _, flag := range append([]string{"timeout", "no-wait", "progress"}, serverFlags...) {
		if o.Session.Given(flag) {
			return &exit.UsageError{Text: "--" + flag + " belongs to --engine"}
		}
	}
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
