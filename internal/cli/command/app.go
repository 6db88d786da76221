package command

import (
	"context"
	"log/slog"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dynctl/dynctl/internal/cli/output"
	"github.com/dynctl/dynctl/internal/cli/session"
	"github.com/dynctl/dynctl/internal/config"
)

// App holds the state that all commands of one command line share. It dials and reads nothing before a
// command runs.
type App struct {
	Env            session.Env
	Quiet, Verbose bool // flags that all commands have
	// Do carries out a command once its options are complete. Tests put a function here that
	// looks at them; nil runs them.
	Do func(context.Context, Runner) error
}

// Runner are the options of a command, complete: Run carries it out.
type Runner interface {
	Run(ctx context.Context) error
}

// New returns an app for the commands of one process.
func New(env session.Env) *App { return &App{Env: env.Complete()} }

// Printer writes tables, until the settings say something else.
func (a *App) Printer() *output.Printer {
	return &output.Printer{
		Streams: a.Env.Streams, Environ: a.Env.Variables(), Now: a.Env.Now, Format: "table", Quiet: a.Quiet, Verbose: a.Verbose,
	}
}

// Settings loads the configuration as the flags of cmd, the environment and the file decide
// it.
func (a *App) Settings(cmd *cobra.Command) (config.Dynctl, *config.Origins, error) {
	// Flags of a verb may have the names of settings: only those that were made
	// from the table count.
	fs := pflag.NewFlagSet("settings", pflag.ContinueOnError)
	cmd.Flags().VisitAll(func(fl *pflag.Flag) {
		if fl.Name == "config" || IsSetting(fl) {
			fs.AddFlag(fl)
		}
	})
	cfg, origins, err := config.LoadDynctl(config.Input{
		Flags: fs, Environ: a.Env.Environ,
		ReadFile: func(path string) ([]byte, error) { return os.ReadFile(a.Env.Path(path)) },
	})
	if err != nil {
		return cfg, nil, err
	}
	if cfg.StateDir != "" {
		cfg.StateDir = a.Env.Path(cfg.StateDir)
	}
	return cfg, origins, origins.Locate(cfg.Validate())
}

// Begin reads the settings for one run of a command. The caller closes the session.
func (a *App) Begin(cmd *cobra.Command) (*session.Session, error) {
	cfg, origins, err := a.Settings(cmd)
	if err != nil {
		return nil, err
	}
	s := &session.Session{
		Env: a.Env, Out: a.Printer(), Config: cfg, Origins: origins, Log: slog.New(slog.DiscardHandler),
		Command: cmd.CommandPath(), Flags: cmd.Flags(),
	}
	s.Out.Format, s.Out.Color = cfg.Output, cfg.Color
	if a.Verbose {
		s.Log = slog.New(slog.NewTextHandler(a.Env.Streams.Err, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	if ns, ok := origins.Of("namespace"); ok {
		s.Named = ns.Origin.Kind != config.FromDefault
	}
	for _, w := range origins.Warnings() {
		s.Out.Note("%s", w)
	}
	return s, s.Adopt()
}
