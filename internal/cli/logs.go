package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/cli/term"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
)

// logsCommand prints logs of workers and agents.
type logsCommand struct {
	follow bool
	tail   int
	tailed bool // tail was given
}

func (f *factory) logs() *cobra.Command {
	o := &logsCommand{}
	cmd := f.command(verb{
		use: "logs [worker...]", short: "Print the logs of workers, or of the agents", group: groupLook,
		long: `Logs come from the agents, wherever they run; with several, each line begins with the
worker's name. Without a name the logs of the agents are printed. When the cluster
does not run, the files on this machine are read.`,
		examples: []string{
			"dynctl logs worker-3",
			"dynctl logs -f --tail 20 worker-3 worker-4",
			"dynctl logs               # the agents' own logs",
		},
		args: names("worker", true), complete: f.completeWorkers,
		see: []string{"dynctl ps"},
		run: o.run,
	})
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.BoolVarP(&o.follow, "follow", "f", false, "go on with what is added")
	countVar(fs, &o.tail, "tail", 0, "begin with this many last lines (default: all, at most 1 MiB)")
	fs.Lookup("tail").DefValue = ""
	return cmd
}

func (o *logsCommand) run(ctx context.Context, inv *invocation, args []string) error {
	o.tailed = inv.cmd.Flags().Changed("tail")
	const action = "cannot read logs"
	c, err := inv.connect(ctx, action)
	if err != nil {
		local, lerr := inv.localLogs(args)
		if inv.external() || lerr != nil || len(local) == 0 {
			return err
		}
		inv.note("cluster %s does not answer; these are its files on this machine", inv.cfg.Cluster)
		return o.printFiles(inv, local)
	}
	v, err := c.View(ctx)
	if err != nil {
		return &failure{action: action, err: err}
	}
	sources, err := o.sources(inv, v, args)
	if err != nil {
		return err
	}
	return o.stream(ctx, inv, c, v, sources)
}

// logSource is one log to print.
type logSource struct {
	label  string
	node   string // id
	worker string
	file   string // on this machine, when no agent has it
}

// sources finds out where the logs are.
func (o *logsCommand) sources(inv *invocation, v client.View, args []string) ([]logSource, error) {
	var out []logSource
	if len(args) == 0 {
		for _, n := range v.Nodes {
			out = append(out, logSource{label: n.Name, node: n.ID})
		}
		if len(out) == 0 {
			return nil, &failure{action: "cannot read logs", err: errors.New("no node is up in cluster " + inv.cfg.Cluster), tries: []string{"dynctl ps --nodes"}}
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
		if files, err := inv.localLogs([]string{name}); err == nil && len(files) > 0 {
			out = append(out, files...)
			continue
		}
		return nil, inv.noWorker("cannot read logs of "+name, name, v)
	}
	return out, nil
}

// stream prints all sources, one after the other or, when following, as they come.
func (o *logsCommand) stream(ctx context.Context, inv *invocation, c *client.Cluster, v client.View, sources []logSource) error {
	out := &lineWriter{w: inv.stdout()}
	read := func(s logSource) error {
		p := out.source(s.label, len(sources) > 1)
		defer p.flush()
		if s.file != "" {
			return o.printFile(s, p)
		}
		opts := client.LogOptions{Worker: s.worker, Tail: o.tail, Follow: o.follow}
		first := true
		none := o.tailed && o.tail == 0
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
	if !o.follow {
		for i, s := range sources {
			if errs[i] = read(s); errs[i] != nil && ctx.Err() != nil {
				break
			}
		}
		return o.outcome(ctx, inv, sources, errs)
	}
	var wg sync.WaitGroup
	for i, s := range sources {
		wg.Go(func() {
			errs[i] = read(s)
			switch err := errs[i]; {
			case ctx.Err() != nil:
			case err == nil:
				out.note(inv.env.Streams.Err, "the log of "+s.label+" ended")
			case len(sources) > 1:
				out.note(inv.env.Streams.Err, "the log of "+s.label+" ended: "+term.Clean(err.Error()))
			}
		})
	}
	wg.Wait()
	return o.outcome(ctx, inv, sources, errs)
}

func (o *logsCommand) outcome(ctx context.Context, inv *invocation, sources []logSource, errs []error) error {
	if ctx.Err() != nil {
		return &interrupted{text: "stopped reading logs", err: context.Cause(ctx)}
	}
	failed := 0
	var first error
	for i, err := range errs {
		if err == nil {
			continue
		}
		failed++
		err = &failure{action: "cannot read logs of " + sources[i].label, err: err}
		if first == nil {
			first = err
		} else if !o.follow {
			inv.warn("%v", err)
		}
	}
	if failed > 0 && failed < len(sources) {
		inv.report(inv.cmd, first)
		return silent{exitPartly}
	}
	return first
}

// noWorker is the error about a name that no worker has.
func (inv *invocation) noWorker(action, name string, v client.View) error {
	var live []string
	for _, w := range v.Workers() {
		live = append(live, w.Name)
	}
	f := &failure{
		action: action, err: fmt.Errorf("%w in cluster %s", client.ErrNoWorker, inv.cfg.Cluster),
		facts: []string{"live workers: " + nameList(live)}, tries: []string{"dynctl ps"},
	}
	if _, err := cluster.WorkerNumber(name); err != nil {
		f.facts = append(f.facts, "names look like worker-7")
	}
	return f
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
		b.WriteString(printable(strings.TrimSuffix(line, "\n")))
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

// printable keeps control characters in logs from reaching a terminal; tabs stay.
func printable(line string) string {
	return strings.Map(func(r rune) rune {
		if r != '\t' && (r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0) {
			return '?'
		}
		return r
	}, line)
}
