package attach

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/cli/command"
	"github.com/dynctl/dynctl/internal/cli/complete"
	"github.com/dynctl/dynctl/internal/cli/declare"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/cli/output"
	"github.com/dynctl/dynctl/internal/cli/session"
	"github.com/dynctl/dynctl/internal/cli/settle"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
)

// detachOptions take a server out of the cluster.
type detachOptions struct {
	command.Waiting

	session *session.Session
	target  string // a URL, or the name of a worker
}

// DetachCommand makes dynctl detach.
func DetachCommand(a *command.App) *cobra.Command {
	o := &detachOptions{}
	cmd := a.Command(command.Verb{
		Use: "detach <url|worker>", Short: "Let a server go that dynctl attach --engine has joined", Group: command.GroupWorkers, Changes: true,
		Long: `Its worker takes no more requests, finishes those that run, and goes. The server itself runs
on. The URL leaves the topology; dynctl attach --engine brings it back.`,
		Examples: []string{
			"dynctl detach http://gpu-3:8001",
			"dynctl detach worker-7",
			"dynctl detach http://gpu-3:8001 --no-wait   # return when it begins",
		},
		Args: command.One("attached server, by its URL or its worker"),
		Complete: complete.From(a, func(v client.View) (out []cobra.Completion) {
			if v.Topology != nil {
				for _, at := range v.Topology.Attached {
					out = append(out, cobra.CompletionWithDesc(at.URL(), string(at.Role)+" "+at.Model.Name))
				}
			}
			return out
		}),
		See: []string{"dynctl attach", "dynctl drain", "dynctl scale"},
		Options: func(s *session.Session, args []string) command.Runner {
			o.session, o.target = s, args[0]
			return o
		},
	})
	cmd.Annotations[command.RareAnnotation] = "true" // the help of dynctl attach names it
	fs := cmd.Flags()
	fs.SortFlags = false
	o.AddFlags(fs, 5*time.Minute, "how long to wait", "the change is declared")
	return cmd
}

// detachResult is the outcome as -o json prints it.
type detachResult struct {
	Cluster    string `json:"cluster"`
	URL        string `json:"url"`
	Generation int64  `json:"generation"`
	Converged  bool   `json:"converged"`
	DurationMS *int64 `json:"duration_ms"`
}

// Run declares that the server is not wanted, and waits until its worker is gone.
func (o *detachOptions) Run(ctx context.Context) error {
	action := "cannot detach " + o.target
	c, err := o.session.Connect(ctx, action)
	if err != nil {
		return err
	}
	w, err := c.Watch(ctx)
	if err != nil {
		return &exit.Failure{Action: action, Err: err}
	}
	defer w.Close()
	url := strings.TrimRight(o.target, "/")
	if a, ok := w.View().Assignments[o.target]; ok {
		url = a.Pool
	}
	begin := o.session.Out.Now()
	topo, err := c.Declare(ctx, func(t *cluster.Topology, _ bool) error {
		if _, ok := t.AttachedAt(url); !ok {
			return o.notAttached(action, *t)
		}
		t.Attached = slices.DeleteFunc(slices.Clone(t.Attached), func(a cluster.Attached) bool { return a.URL() == url })
		if len(t.Attached) == 0 {
			t.Attached = nil
		}
		t.Reason = declare.Reason(o.session, "")
		return nil
	})
	if err := failed(action, err); err != nil {
		return err
	}
	r := detachResult{Cluster: c.Name, URL: url, Generation: topo.Generation, Converged: !o.NoWait}
	if o.NoWait {
		if err := o.session.Out.Answer(output.Answer{Data: r, Text: fmt.Sprintf("%s is detached; its worker drains.\n", url)}); err != nil {
			return err
		}
		return exit.Silent{Code: exit.Accepted}
	}
	wait := settle.Wait{Out: o.session.Out, Operation: "detach", Doing: "detaching " + url, Timeout: o.Timeout, Progress: o.Progress, Pools: []string{url}}
	if err := wait.Run(ctx, c, w, topo); err != nil {
		return err
	}
	took := o.session.Out.Now().Sub(begin)
	ms := took.Milliseconds()
	r.DurationMS = &ms
	return o.session.Out.Answer(output.Answer{Data: r, Text: fmt.Sprintf("%s has left the cluster after %s; the server runs on.\n", url, human.Duration(took))})
}

// notAttached is the error about a server or worker that is not attached.
func (o *detachOptions) notAttached(action string, t cluster.Topology) error {
	var urls []string
	for _, a := range t.Attached {
		urls = append(urls, a.URL())
	}
	return &exit.Failure{
		Action: action, Err: fmt.Errorf("no server is attached by that name"),
		Facts: []string{"attached: " + human.Names(urls)}, Tries: []string{"dynctl ps", "dynctl scale   for workers that the cluster starts"},
	}
}
