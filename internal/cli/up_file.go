package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/statedir"
	"github.com/dynctl/dynctl/internal/topofile"
)

// readTopology reads a topology file, or standard input for "-".
func (inv *invocation) readTopology(name, action string) (topofile.File, topofile.Source, error) {
	src := topofile.Source{Name: name, Dir: inv.env.Dir, Home: inv.variables().Get("HOME")}
	var content []byte
	var err error
	if name == "-" {
		src.Name = "standard input"
		content, err = io.ReadAll(io.LimitReader(inv.env.Streams.In, topofile.MaxBytes+1))
	} else {
		path := inv.path(name)
		src.Dir = filepath.Dir(path)
		content, err = os.ReadFile(path)
	}
	if err != nil {
		return topofile.File{}, src, &failure{action: action, err: fmt.Errorf("topology: %w", err), code: exitUsage}
	}
	f, err := topofile.Parse(src, content)
	var problems topofile.Problems
	if errors.As(err, &problems) {
		fail := &failure{action: fmt.Sprintf("%s: %s in %s", action, plural(len(problems), "mistake"), src.Name), code: exitUsage, tries: []string{"dynctl help topology"}}
		for _, p := range problems {
			fail.facts = append(fail.facts, p.Error())
		}
		return f, src, fail
	}
	inv.tellFormer(&f)
	return f, src, err
}

// tellFormer tells what was spelled as the release before did.
func (inv *invocation) tellFormer(f *topofile.File) {
	for _, n := range f.Notes {
		inv.note("%s", n)
	}
	f.Notes = nil
}

// use makes the namespace of a file that of the invocation. One that was given must be
// the same.
func (inv *invocation) use(f topofile.File, name string) error {
	if f.Namespace == "" {
		return nil
	}
	if fl := inv.cmd.Flags().Lookup("namespace"); fl != nil && fl.Changed && f.Namespace != inv.cfg.Namespace {
		return &usageError{text: fmt.Sprintf("--namespace %s: %s is of the namespace %s", inv.cfg.Namespace, name, f.Namespace)}
	}
	inv.cfg.Namespace, inv.named = f.Namespace, true
	return nil
}

// readFile reads the topology file, if one is given.
func (o *upCommand) readFile(inv *invocation, action string) (err error) {
	o.dir, o.home = inv.env.Dir, inv.variables().Get("HOME")
	o.reason = inv.reason(o.why)
	var said topofile.File
	for _, s := range o.sets {
		_ = said.Set(s, o.source()) // what is wrong is told when it is used
	}
	inv.tellFormer(&said)
	if !o.given("file") {
		return nil
	}
	if o.file == "" {
		return &usageError{text: "--file: no file given"}
	}
	var src topofile.Source
	if o.read, src, err = inv.readTopology(o.file, action); err != nil {
		return err
	}
	o.file = src.Name
	return inv.use(o.read, src.Name)
}

// fileName is what messages call the file.
func (o *upCommand) fileName() string { return filepath.Base(o.file) }

// source is what assignments of the command line are read as.
func (o *upCommand) source() topofile.Source { return topofile.Source{Dir: o.dir, Home: o.home} }

// notOfAChange are flags that say nothing of what is declared.
var notOfAChange = []string{"why", "yes", "timeout", "no-wait", "progress", "port", "deadline", "grace", "quiet", "verbose"}

// reasonLength bounds what is kept of a command line.
const reasonLength = 160

// reason says what a change is for: what somebody wrote, or else the command.
func (inv *invocation) reason(why string) string {
	if why = strings.TrimSpace(why); why == "" {
		words := []string{inv.cmd.CommandPath()}
		inv.cmd.Flags().Visit(func(fl *pflag.Flag) {
			switch {
			case isSetting(fl), slices.Contains(notOfAChange, fl.Name):
			case fl.Value.Type() == "bool":
				words = append(words, "--"+fl.Name)
			case fl.Value.Type() == "stringArray":
				list, _ := inv.cmd.Flags().GetStringArray(fl.Name) // it is one
				for _, v := range list {
					words = append(words, "--"+fl.Name, shellQuote(v))
				}
			default:
				words = append(words, "--"+fl.Name, shellQuote(fl.Value.String()))
			}
		})
		why = strings.Join(words, " ")
	}
	if runes := []rune(why); len(runes) > reasonLength {
		why = string(runes[:reasonLength-1]) + "…"
	}
	return why
}

// declared is what a cluster declares now, and whether it ever declared anything.
func declared(ctx context.Context, c *client.Cluster) (r cluster.Revision, ever bool, err error) {
	t, settings, err := c.Revision(ctx)
	if t != nil {
		r.Topology = *t
	}
	r.Settings = settings
	return r, t != nil, err
}

// stopped reports whether the cluster is one of this machine and does not run.
func (inv *invocation) stopped() bool {
	if inv.external() {
		return false
	}
	local, err := inv.local()
	if err != nil {
		return false // whoever connects says why
	}
	_, err = local.Endpoints()
	return errors.Is(err, statedir.ErrNotRunning)
}

// agree asks before a file takes away the model that a cluster serves.
func (o *upCommand) agree(ctx context.Context, inv *invocation) error {
	if o.file == "" || o.yes {
		return nil
	}
	if inv.stopped() {
		return nil
	}
	c, err := inv.connect(ctx, upAction)
	if err != nil {
		return err
	}
	now, _, err := declared(ctx, c)
	if err != nil {
		return &failure{action: upAction, err: err}
	}
	next, err := o.desired(now, false)
	if err != nil {
		return err
	}
	from, to := now.Topology, next.Topology
	if from.Prefill+from.Decode == 0 || to.Prefill+to.Decode == 0 || from.Model.Name == to.Model.Name {
		return nil
	}
	return inv.confirm(o.yes, "cannot serve "+to.Model.Name+" in cluster "+c.Name,
		fmt.Sprintf("Replace the model %s by %s? Requests that name %s will fail.", from.Model.Name, to.Model.Name, from.Model.Name))
}

// completeFields completes the fields of a topology, and values where there are a few.
func completeFields(_ *cobra.Command, _ []string, text string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var out []cobra.Completion
	name, _, valued := strings.Cut(text, "=")
	for _, fd := range topofile.Fields() {
		if !valued {
			out = append(out, cobra.CompletionWithDesc(fd.Path+"=", fd.Key.Help))
			continue
		}
		if fd.Path == name {
			for _, c := range fd.Key.Choices {
				out = append(out, name+"="+c)
			}
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}
