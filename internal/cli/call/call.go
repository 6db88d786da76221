package call

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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

// Options call one endpoint.
type Options struct {
	Session  *session.Session
	Endpoint string
	Body     string // JSON, @file, - for standard input, or empty for none
	ID       string // of the instance; empty: a random one
	Timeout  time.Duration
}

// Command makes dynctl call.
func Command(a *command.App) *cobra.Command {
	o := &Options{}
	cmd := a.Command(command.Verb{
		Use: "call <endpoint> [body]", Short: "Call an endpoint and print what it answers, one JSON document per line", Group: command.GroupLook, Changes: true,
		Long: `The request goes over the request plane to a random instance of the endpoint, or to the one
that --id names. The body is JSON, @FILE for the content of a file, or - for standard input;
without one the request is empty. Items of the answer are printed as they arrive. Fields that
are zero or empty are left out, as on the wire; bytes are base64.

Ctrl-C ends the request at the worker, too, and so does the timeout. The exit code is 1 when
the worker answers with an error, 3 when it cannot be reached, 4 after the timeout.`,
		Examples: []string{
			"dynctl call dyn://dynamo.decode.stats",
			`dynctl call dynamo.decode.generate '{"token_ids":[1,2,3],"stop_conditions":{"max_tokens":4}}'`,
			"dynctl call dynamo.backend.generate @request.json --id 694d98147d54be25 --timeout 10s",
		},
		Args: endpointAndBody, Complete: complete.First(complete.Endpoints(a)),
		See: []string{"dynctl get endpoints", "dynctl chat"},
		Options: func(s *session.Session, args []string) command.Runner {
			o.Session, o.Endpoint = s, args[0]
			o.Body = strings.Join(args[1:], "")
			return o
		},
	})
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&o.ID, "id", "", "instance to call, as dynctl get endpoints prints it")
	command.Duration(fs, &o.Timeout, "timeout", 0, "end the request after this time; 0 never does")
	return cmd
}

func endpointAndBody(_ *cobra.Command, args []string) error {
	if len(args) == 0 || len(args) > 2 {
		return errors.New("name one endpoint, and one body at most")
	}
	return nil
}

// Run calls the endpoint.
func (o *Options) Run(ctx context.Context) error {
	e, err := cluster.ParseEndpoint(o.Endpoint)
	if err != nil {
		return &exit.UsageError{Text: err.Error(), Tries: []string{"dynctl get endpoints"}}
	}
	body, err := readBody(o.Session.Env, o.Body)
	if err != nil {
		return &exit.UsageError{Text: err.Error()}
	}
	action := "cannot call " + e.String()
	c, err := o.Session.Connect(ctx, action)
	if err != nil {
		return err
	}
	limited := ctx
	if o.Timeout > 0 {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, o.Timeout)
		defer cancel()
	}
	id, err := o.instance(limited, c, e)
	if err == nil {
		err = c.Call(limited, e, id, body, o.print)
	}
	var out *outputError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &out):
		return out.err
	case ctx.Err() != nil:
		return &exit.Stopped{Text: "stopped " + e.String(), Err: err}
	case errors.Is(err, context.DeadlineExceeded):
		return &exit.Failure{Action: action, Err: fmt.Errorf("no end of the answer within %s", command.DurationText(o.Timeout)), Code: exit.Deadline}
	}
	f := &exit.Failure{Action: action, Err: err}
	if errors.Is(err, client.ErrNoInstance) {
		f.Tries = []string{"dynctl get endpoints"}
	}
	return f
}

// instance returns the id that --id names, or 0 without the flag. Texts of digits alone may
// be hexadecimal or decimal: what is registered decides.
func (o *Options) instance(ctx context.Context, c *client.Cluster, e cluster.Endpoint) (cluster.InstanceID, error) {
	if o.ID == "" {
		return 0, nil
	}
	v, err := c.ViewOf(ctx, e)
	if err != nil {
		return 0, err
	}
	ref, ok := cluster.ParseInstanceRef(o.ID)
	for _, inst := range v.Instances {
		if inst.InstanceID.String() == strings.ToLower(o.ID) || ok && inst.InstanceID == ref {
			return inst.InstanceID, nil
		}
	}
	return 0, fmt.Errorf("%w %s", client.ErrNoInstance, o.ID)
}

// outputError is an error of standard output, and none of the endpoint.
type outputError struct{ err error }

func (e *outputError) Error() string { return e.err.Error() }

func (o *Options) print(item any) error {
	enc := json.NewEncoder(o.Session.Out.Streams.Data())
	enc.SetEscapeHTML(false)
	if err := enc.Encode(item); err != nil {
		return &outputError{err}
	}
	return nil
}
