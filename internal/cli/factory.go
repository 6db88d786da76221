package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dynctl/dynctl/internal/cli/progress"
	"github.com/dynctl/dynctl/internal/cli/term"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/statedir"
	"github.com/dynctl/dynctl/internal/tui"
)

// factory holds what commands share. Nothing in it dials or reads before a command
// runs.
type factory struct {
	env     Env
	quiet   bool
	verbose bool
	// dashboard is tui.Run, replaced in tests of how it is called.
	dashboard func(context.Context, client.Source, tui.Options) error
}

func newFactory(env Env) *factory {
	if env.Now == nil {
		env.Now = time.Now
	}
	if env.Executable == nil {
		env.Executable = os.Executable
	}
	return &factory{env: env, dashboard: tui.Run}
}

func (f *factory) variables() term.Env { return term.Env(f.env.Environ) }

// path makes a path of the command line absolute.
func (f *factory) path(p string) string {
	if filepath.IsAbs(p) {
		return filepath.Clean(p)
	}
	return filepath.Join(f.env.Dir, p)
}

// settings loads the configuration as the flags of cmd, the environment and the
// file decide it.
func (f *factory) settings(cmd *cobra.Command) (config.Dynctl, *config.Origins, error) {
	// Flags of a verb may have the names of settings: only those that were made
	// from the table count.
	fs := pflag.NewFlagSet("settings", pflag.ContinueOnError)
	cmd.Flags().VisitAll(func(fl *pflag.Flag) {
		if fl.Name == "config" || isSetting(fl) {
			fs.AddFlag(fl)
		}
	})
	cfg, origins, err := config.LoadDynctl(config.Input{
		Flags: fs, Environ: f.env.Environ,
		ReadFile: func(path string) ([]byte, error) { return os.ReadFile(f.path(path)) },
	})
	if err != nil {
		return cfg, nil, err
	}
	if cfg.StateDir != "" {
		cfg.StateDir = f.path(cfg.StateDir)
	}
	return cfg, origins, origins.Locate(cfg.Validate())
}

// settingAnnotation marks flags that were made from the table of settings.
const settingAnnotation = "dynctl_setting"

func isSetting(fl *pflag.Flag) bool { return len(fl.Annotations[settingAnnotation]) > 0 }

// addSettings adds the flags of a command's settings.
func addSettings(fs *pflag.FlagSet, command string) {
	own := pflag.NewFlagSet("", pflag.ContinueOnError)
	config.DynctlTable().AddFlags(own, command)
	own.VisitAll(func(fl *pflag.Flag) {
		if fl.Annotations == nil {
			fl.Annotations = map[string][]string{}
		}
		fl.Annotations[settingAnnotation] = []string{"true"}
		fs.AddFlag(fl)
	})
}

// invocation is one run of one command.
type invocation struct {
	*factory
	cmd     *cobra.Command
	cfg     config.Dynctl
	origins *config.Origins
	log     *slog.Logger
	format  string // of answers
	named   bool   // a namespace was chosen, and is not the default
	open    []io.Closer
}

// begin reads the settings and refuses what may not be done.
func (f *factory) begin(cmd *cobra.Command, changes bool) (*invocation, error) {
	cfg, origins, err := f.settings(cmd)
	if err != nil {
		return nil, err
	}
	inv := &invocation{factory: f, cmd: cmd, cfg: cfg, origins: origins, format: cfg.Output, log: slog.New(slog.DiscardHandler)}
	if f.verbose {
		inv.log = slog.New(slog.NewTextHandler(f.env.Streams.Err, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	if ns, ok := origins.Of("namespace"); ok {
		inv.named = ns.Origin.Kind != config.FromDefault
	}
	for _, w := range origins.Warnings() {
		inv.note("%s", w)
	}
	if err := inv.adopt(); err != nil {
		return nil, err
	}
	if why := inv.readOnly(); changes && why != "" {
		return nil, &failure{action: "cannot run " + cmd.CommandPath(), err: errors.New("it changes the cluster, and " + why)}
	}
	return inv, nil
}

// adopt takes over how to reach a cluster that this machine has joined, unless one of its
// name runs here or endpoints are configured.
func (inv *invocation) adopt() error {
	if inv.external() {
		return nil
	}
	local, err := inv.local()
	if err != nil {
		return err
	}
	if _, err := local.Endpoints(); !errors.Is(err, statedir.ErrNotRunning) || local.HostsEtcd() {
		return nil // an error is for who needs them
	}
	j, err := local.Joined()
	if errors.Is(err, statedir.ErrNotJoined) {
		return nil
	}
	if err != nil {
		return &failure{action: "cannot reach " + local.Name, err: err, tries: []string{"dynctl join TOKEN"}}
	}
	inv.cfg.Etcd.Endpoints = j.Etcd
	if inv.cfg.NATS.URL == "" {
		inv.cfg.NATS.URL = j.NATS
	}
	if !inv.named {
		inv.cfg.Namespace, inv.named = j.Namespace, true
	}
	return nil
}

// readOnly says why changes are refused; empty when they are not.
func (inv *invocation) readOnly() string {
	if !inv.cfg.ReadOnly {
		return ""
	}
	if v, ok := inv.origins.Of("read_only"); ok {
		return "read-only is set by " + v.Origin.String()
	}
	return "read-only is set"
}

// note tells something beside the answer.
func (inv *invocation) note(format string, args ...any) {
	if inv.quiet {
		return
	}
	inv.warn("note: "+format, args...)
}

// warn is a note that -q does not hide.
func (inv *invocation) warn(format string, args ...any) { inv.tell("dynctl: "+format, args...) }

// tell writes one line to standard error.
func (inv *invocation) tell(format string, args ...any) {
	_, _ = io.WriteString(inv.env.Streams.Err, term.Clean(fmt.Sprintf(format, args...))+"\n") // nobody is left to tell
}

func (inv *invocation) stdout() io.Writer { return inv.env.Streams.Out }

// say prints one line of an answer. Commands that changed something go on when
// nobody reads it any longer.
func (inv *invocation) say(line string) {
	_, _ = io.WriteString(inv.stdout(), line+"\n")
}

func (inv *invocation) palette() term.Palette {
	return term.Palette{On: term.Colored(inv.cfg.Color, inv.env.Streams.OutTTY, inv.variables())}
}

// progress returns a display for an operation.
func (inv *invocation) progress(mode string) progress.Display {
	if inv.quiet && mode == "auto" {
		mode = "quiet"
	}
	if inv.verbose && mode == "auto" {
		mode = "plain" // logs would run through the frames
	}
	return progress.New(progress.Options{
		Mode: mode, Streams: inv.env.Streams, Env: inv.variables(), Now: inv.env.Now,
		Palette: term.Palette{On: term.Colored(inv.cfg.Color, inv.env.Streams.ErrTTY, inv.variables())},
	})
}

// close ends the connections of the invocation. Nothing is buffered in them.
func (inv *invocation) close() {
	for _, c := range inv.open {
		_ = c.Close()
	}
	inv.open = nil
}

// target is what to connect to: without a namespace, unless one was chosen.
func (inv *invocation) target() config.Dynctl {
	cfg := inv.cfg
	if !inv.named {
		cfg.Namespace = ""
	}
	return cfg
}

// beside reports whether the chosen namespace is another one than that for which the
// local cluster was started.
func (inv *invocation) beside(e statedir.Endpoints) bool {
	return inv.named && e.Namespace != "" && e.Namespace != inv.cfg.Namespace
}

// connect reaches the cluster, until close; action begins the message when it cannot.
func (inv *invocation) connect(ctx context.Context, action string) (*client.Cluster, error) {
	c, err := client.Connect(ctx, inv.target(), inv.log)
	switch {
	case err == nil:
		inv.open = append(inv.open, c)
		return c, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.Is(err, statedir.ErrNotRunning):
		return nil, inv.notRunning(action)
	case errors.Is(err, client.ErrUnreachable):
		return nil, &failure{action: action, err: err, tries: []string{"dynctl doctor"}}
	}
	return nil, &failure{action: action, err: err}
}

// watch reaches the cluster and follows it; the caller closes the watch.
func (inv *invocation) watch(ctx context.Context, action string) (*client.Cluster, *client.Watch, error) {
	c, err := inv.connect(ctx, action)
	if err != nil {
		return nil, nil, err
	}
	w, err := c.Watch(ctx)
	if err != nil {
		return nil, nil, &failure{action: action, err: err}
	}
	return c, w, nil
}

// notRunning is the error of a command that needs a cluster where none runs.
func (inv *invocation) notRunning(action string) error {
	f := &failure{
		action: action, err: fmt.Errorf("cluster %s does not run on this machine", inv.cfg.Cluster), code: exitUnreachable,
		tries: []string{"dynctl up", "dynctl join TOKEN, or --etcd-endpoints host:port, for a cluster elsewhere"},
	}
	if others := inv.runningClusters(); len(others) > 0 {
		f.facts = []string{"running here: " + strings.Join(others, ", ")}
		f.tries = slices.Insert(f.tries, 0, inv.cmd.CommandPath()+" --cluster "+others[0])
	}
	return f
}

// runningClusters names the clusters whose stores run on this machine.
func (inv *invocation) runningClusters() []string {
	all, err := statedir.Clusters(inv.cfg.StateDir)
	if err != nil {
		return nil
	}
	var names []string
	for _, c := range all {
		if _, err := c.Endpoints(); err == nil {
			names = append(names, c.Name)
		}
	}
	return names
}

// local is the directory of the cluster on this machine.
func (inv *invocation) local() (statedir.Cluster, error) {
	return statedir.Open(inv.cfg.StateDir, inv.cfg.Cluster)
}

// external reports whether the stores are configured rather than found.
func (inv *invocation) external() bool { return len(inv.cfg.Etcd.Endpoints) > 0 }
