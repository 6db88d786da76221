package attach

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dynctl/dynctl/internal/cli/command"
	"github.com/dynctl/dynctl/internal/cli/declare"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/fleet"
	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/cli/output"
	"github.com/dynctl/dynctl/internal/cli/session"
	"github.com/dynctl/dynctl/internal/cli/settle"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
)

// serverFlags are the flags of --engine alone.
var serverFlags = []string{"role", "kv-events", "kv-replay", "connector", "served-model", "host", "bootstrap-port", "pair", "api-key-file", "ca-file"}

// serverOptions make a server of another engine a worker.
type serverOptions struct {
	command.Waiting

	session *session.Session
	server  cluster.Attached
	role    string
}

// serverResult is the outcome as -o json prints it.
type serverResult struct {
	Cluster    string       `json:"cluster"`
	URL        string       `json:"url"`
	Worker     *string      `json:"worker"` // null before the controller has named one
	Engine     string       `json:"engine"`
	Role       cluster.Role `json:"role"`
	Model      string       `json:"model"`
	Generation int64        `json:"generation"`
	Converged  bool         `json:"converged"`
	DurationMS *int64       `json:"duration_ms"`
}

// run attaches the server and waits until it serves.
func (o *serverOptions) run(ctx context.Context) error {
	o.server.Engine.Server.URL = strings.TrimRight(o.server.Engine.Server.URL, "/")
	url := o.server.URL()
	action := "cannot attach " + url
	c, err := o.session.Connect(ctx, action)
	if err != nil {
		return err
	}
	w, err := c.Watch(ctx)
	if err != nil {
		return &exit.Failure{Action: action, Err: err}
	}
	defer w.Close()
	if o.server.Node != "" {
		n, err := fleet.Node(o.session, action, o.server.Node, w.View())
		if err != nil {
			return err
		}
		o.server.Node = n.Name
	}
	begin := o.session.Out.Now()
	topo, err := c.Declare(ctx, func(t *cluster.Topology, _ bool) error {
		if err := o.nameModel(*t); err != nil {
			return err
		}
		if err := o.server.Validate(); err != nil {
			return &exit.UsageError{Text: err.Error()}
		}
		servers := slices.DeleteFunc(slices.Clone(t.Attached), func(a cluster.Attached) bool { return a.URL() == url })
		t.Attached, t.Reason = append(servers, o.server), declare.Reason(o.session, "")
		return nil
	})
	if err := failed(action, err); err != nil {
		return err
	}
	if o.NoWait {
		if err := o.answer(c, w.View(), topo, false, begin); err != nil {
			return err
		}
		return exit.Silent{Code: exit.Accepted}
	}
	wait := settle.Wait{
		Out: o.session.Out, Operation: "attach", Doing: "attaching " + url, Timeout: o.Timeout, Progress: o.Progress,
		Pools: []string{url}, Undo: "dynctl detach " + human.ShellQuote(url), Tries: []string{"curl " + human.ShellQuote(url+"/v1/models")},
	}
	if err := wait.Run(ctx, c, w, topo); err != nil {
		return err
	}
	return o.answer(c, w.View(), topo, true, begin)
}

// nameModel finds the model that the server serves: the one that was named, or the only one of
// the topology. Of a model that the topology has, the server gets the same files.
func (o *serverOptions) nameModel(t cluster.Topology) error {
	m := &o.server.Model
	if names := t.ModelNames(); m.Name == "" {
		if len(names) != 1 {
			return &exit.UsageError{Text: "name the model that the server serves: --model", Tries: []string{"curl " + human.ShellQuote(o.server.URL()+"/v1/models")}}
		}
		m.Name = names[0]
	}
	for _, pool := range t.PoolNames() {
		if of := t.In(pool).Model; m.Path == "" && of.Name == m.Name && pool != o.server.URL() {
			m.Path = of.Path
		}
	}
	return nil
}

// failed tells why a topology was not changed.
func failed(action string, err error) error {
	var usage *exit.UsageError
	var told *exit.Failure
	switch {
	case err == nil:
		return nil
	case errors.As(err, &usage):
		return usage
	case errors.As(err, &told):
		return told
	}
	return &exit.Failure{Action: action, Err: err}
}

func (o *serverOptions) answer(c *client.Cluster, v client.View, t cluster.Topology, converged bool, begin time.Time) error {
	a := o.server
	r := serverResult{Cluster: c.Name, URL: a.URL(), Engine: a.Engine.Backend, Role: a.Role, Model: a.Model.Name, Generation: t.Generation, Converged: converged}
	worker := workerOf(v, a.URL())
	if worker != "" {
		r.Worker = &worker
	}
	text := fmt.Sprintf("%s is attached to %s; its worker starts.\n", a.URL(), c.Name)
	if converged {
		took := o.session.Out.Now().Sub(begin)
		ms := took.Milliseconds()
		r.DurationMS = &ms
		text = fmt.Sprintf("%s serves %s as %s worker for %s, after %s.\n", cmp.Or(worker, a.URL()), a.Model.Name, a.Role, a.URL(), human.Duration(took))
	}
	return o.session.Out.Answer(output.Answer{Data: r, Names: slices.DeleteFunc([]string{worker}, func(s string) bool { return s == "" }), Text: text})
}

// workerOf returns the worker that speaks for a server; empty if there is none.
func workerOf(v client.View, url string) string {
	for _, w := range v.Workers() {
		if a := v.Assignments[w.Name]; a.Pool == url && a.Desire != cluster.DesireRemove && a.Replaces == "" {
			return w.Name
		}
	}
	return ""
}
