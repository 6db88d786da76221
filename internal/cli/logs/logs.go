package logs

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/cli/command"
	"github.com/dynctl/dynctl/internal/cli/complete"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/fleet"
	"github.com/dynctl/dynctl/internal/cli/session"
	"github.com/dynctl/dynctl/internal/cli/term"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
)

// Options prints logs of workers and agents.
type Options struct {
	Session *session.Session
	Workers []string

	Follow bool
	Tail   int
	tailed bool // tail was given
}

// Command makes dynctl logs.
func Command(a *command.App) *cobra.Command {
	o := &Options{}
	cmd := a.Command(command.Verb{
		Use: "logs [worker...]", Short: "Print the logs of workers, or of the agents", Group: command.GroupLook,
		Long: `Logs come from the agents, wherever they run; with several, each line begins with the
worker's name. Without a name the logs of the agents are printed. When the cluster
does not run, the files on this machine are read.`,
		Examples: []string{
			"dynctl logs worker-3",
			"dynctl logs -f --tail 20 worker-3 worker-4",
			"dynctl logs               # the agents' own logs",
		},
		Args: command.Names("worker", true), Complete: complete.Workers(a),
		See: []string{"dynctl ps"},
		Options: func(s *session.Session, args []string) command.Runner {
			o.Session, o.Workers = s, args
			return o
		},
	})
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.BoolVarP(&o.Follow, "follow", "f", false, "go on with what is added")
	command.Count(fs, &o.Tail, "tail", 0, "begin with this many last lines (default: all, at most 1 MiB)")
	fs.Lookup("tail").DefValue = ""
	return cmd
}

// Run prints the logs.
func (o *Options) Run(ctx context.Context) error {
	args := o.Workers
	o.tailed = o.Session.Given("tail")
	const action = "cannot read logs"
	c, err := o.Session.Connect(ctx, action)
	if err != nil {
		local, lerr := localLogs(o.Session, args)
		if o.Session.External() || lerr != nil || len(local) == 0 {
			return err
		}
		o.Session.Out.Note("cluster %s does not answer; these are its files on this machine", o.Session.Config.Cluster)
		return o.printFiles(local)
	}
	v, err := c.View(ctx)
	if err != nil {
		return &exit.Failure{Action: action, Err: err}
	}
	for i := range args {
		args[i] = v.NameOf(args[i])
	}
	sources, err := o.sources(v, args)
	if err != nil {
		return err
	}
	return o.stream(ctx, c, v, sources)
}

// logSource is one log to print.
type logSource struct {
	label  string
	node   string // id
	worker string
	file   string // on this machine, when no agent has it
}

// sources finds out where the logs are.
func (o *Options) sources(v client.View, args []string) ([]logSource, error) {
	var out []logSource
	if len(args) == 0 {
		for _, n := range v.Nodes {
			out = append(out, logSource{label: n.Name, node: n.ID})
		}
		if len(out) == 0 {
			return nil, &exit.Failure{Action: "cannot read logs", Err: errors.New("no node is up in cluster " + o.Session.Config.Cluster), Tries: []string{"dynctl ps --nodes"}}
		}
		return out, nil
	}
	for _, name := range args {
		node := v.Status[name].Node
		if a, ok := v.Assignments[name]; ok && a.Node != "" {
			node = a.Node
		}
		if node != "" && slices.ContainsFunc(v.Nodes, func(n cluster.Node) bool { return n.ID == node }) {
			out = append(out, logSource{label: name, node: node, worker: name})
			continue
		}
		// A worker that is gone, or whose node is: its log may be on this machine.
		if files, err := localLogs(o.Session, []string{name}); err == nil && len(files) > 0 {
			out = append(out, files...)
			continue
		}
		return nil, fleet.NoWorker(o.Session, "cannot read logs of "+name, name, v)
	}
	return out, nil
}

// stream prints all sources, one after the other or, when following, as they come.
func (o *Options) stream(ctx context.Context, c *client.Cluster, v client.View, sources []logSource) error {
	out := &lineWriter{w: o.Session.Out.Streams.Data()}
	read := func(s logSource) error {
		p := out.source(s.label, len(sources) > 1)
		defer p.flush()
		if s.file != "" {
			return o.printFile(s, p)
		}
		opts := client.LogOptions{Worker: s.worker, Tail: o.Tail, Follow: o.Follow}
		first := true
		none := o.tailed && o.Tail == 0
		if none {
			opts.Tail = 1 // the protocol has no "nothing": 0 means all
		}
		return c.Logs(ctx, v, s.node, opts, func(b []byte) error {
			if first && none {
				first = false
				return nil
			}
			first = false
			return p.write(b)
		})
	}
	errs := make([]error, len(sources))
	if !o.Follow {
		for i, s := range sources {
			if errs[i] = read(s); errs[i] != nil && ctx.Err() != nil {
				break
			}
		}
		return o.outcome(ctx, sources, errs)
	}
	var wg sync.WaitGroup
	for i, s := range sources {
		wg.Go(func() {
			errs[i] = read(s)
			switch err := errs[i]; {
			case ctx.Err() != nil:
			case err == nil:
				out.note(o.Session.Out.Streams.Err, "the log of "+s.label+" ended")
			case len(sources) > 1:
				out.note(o.Session.Out.Streams.Err, "the log of "+s.label+" ended: "+term.Clean(err.Error()))
			}
		})
	}
	wg.Wait()
	return o.outcome(ctx, sources, errs)
}

func (o *Options) outcome(ctx context.Context, sources []logSource, errs []error) error {
	if ctx.Err() != nil {
		return &exit.Stopped{Text: "stopped reading logs", Err: context.Cause(ctx)}
	}
	failed := 0
	var first error
	for i, err := range errs {
		if err == nil {
			continue
		}
		failed++
		err = &exit.Failure{Action: "cannot read logs of " + sources[i].label, Err: err}
		if first == nil {
			first = err
		} else if !o.Follow {
			o.Session.Out.Warn("%v", err)
		}
	}
	if failed > 0 && failed < len(sources) {
		o.Session.Out.Report(first)
		return exit.Silent{Code: exit.Partly}
	}
	return first
}

// lineWriter joins the lines of several sources, each line whole.
type lineWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lineWriter) note(w io.Writer, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, _ = io.WriteString(w, "dynctl: note: "+text+"\n") // nobody is left to tell
}

func (l *lineWriter) source(label string, prefixed bool) *lineSource {
	s := &lineSource{out: l}
	if prefixed {
		s.prefix = label + " | "
	}
	return s
}

// lineSource cuts one source into lines.
type lineSource struct {
	out    *lineWriter
	prefix string
	rest   string // a line that has no end yet
}

func (s *lineSource) write(b []byte) error {
	s.rest += string(b)
	i := strings.LastIndexByte(s.rest, '\n')
	if i < 0 {
		return nil
	}
	text := s.rest[:i+1]
	s.rest = s.rest[i+1:]
	return s.print(text)
}

func (s *lineSource) print(text string) error {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(s.prefix)
		b.WriteString(term.Printable(strings.TrimSuffix(line, "\n")))
		b.WriteByte('\n')
	}
	s.out.mu.Lock()
	defer s.out.mu.Unlock()
	_, err := io.WriteString(s.out.w, b.String())
	return err
}

func (s *lineSource) flush() {
	if s.rest != "" {
		_ = s.print(s.rest) // the reader left
		s.rest = ""
	}
}
