// Package dynamod is the command line of the node agent: flags, signals, logs and
// exit codes.
//
// [Main] is the whole program. When it returns, everything it started has ended. Package
// agent does the work. The pages about dynamod in docs/man are generated from its
// commands.
package dynamod

//go:generate go test -run ^TestManuals$ . -update

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/agent"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/dynlib"
	"github.com/dynctl/dynctl/internal/statedir"
	answers "github.com/dynctl/dynctl/internal/stdout"
	"github.com/dynctl/dynctl/internal/version"
)

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1 // the node could not start, or failed
	exitUsage  = 2 // wrong flags, arguments or configuration
)

// usageError is a mistake in flags or configuration.
type usageError struct{ error }

// Main runs dynamod and returns its exit code.
func Main(args []string, stdout io.Writer, stderr *os.File) int {
	stdout, out := answers.Watch(stdout)
	cmd := command(stdout, stderr)
	cmd.SetArgs(args)
	err := cmd.Execute()
	if err == nil {
		err = out.Err()
	}
	if errors.Is(err, agent.ErrDeviceLost) {
		_, _ = fmt.Fprintf(stderr, "dynamod: %v\n", err)
		err = again(os.Environ(), time.Now(), syscall.Exec)
	}
	if err == nil {
		return exitOK
	}
	if answers.Unread(err) {
		return exitFailed
	}
	_, _ = fmt.Fprintf(stderr, "dynamod: %v\n", err) // an error cannot be reported anywhere else
	var usage usageError
	if errors.As(err, &usage) {
		return exitUsage
	}
	return exitFailed
}

func command(stdout io.Writer, stderr *os.File) *cobra.Command {
	table := config.DynamodTable()
	var check bool
	var token string
	cmd := &cobra.Command{
		Use:   "dynamod",
		Short: "node agent: hosts workers, the KV data path and the OpenAI-compatible frontend",
		Long: `dynamod hosts the prefill and decode workers of one node, their data path and an
OpenAI-compatible HTTP frontend. Without external etcd and NATS it runs both
inside itself. It runs until SIGTERM or SIGINT, which drain the node; a second
signal stops it at once.

dynctl up starts it for you on one machine; on several, run one dynamod per node.
With --node-advertise-host, other machines reach it at that address, and not on
loopback only: its etcd and NATS, requests to workers and KV transfers, unless their
listeners are configured. "dynctl credentials --join" prints the token with which
other nodes join a cluster, once: they keep what it says. Every local user can
read the arguments of a process, so hand the token over as DYNAMOD_JOIN, in a
file, or on standard input. Nodes with an etcd and NATS of their own choice share
one secret_file.`,
		Example: `  dynamod
  dynamod --config /etc/dynctl/dynamod.yaml
  dynamod --node-name gpu-5 --node-advertise-host 10.0.0.5
  DYNAMOD_JOIN=dynctl1:... dynamod --node-name gpu-7 --node-advertise-host 10.0.0.7
  ETCD_ENDPOINTS=10.0.0.1:2379 NATS_SERVER=nats://10.0.0.1:4222 dynamod --node-name gpu-7 --node-advertise-host 10.0.0.7`,
		Args:          noArgs,
		Version:       version.String(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	if !dynlib.Enabled {
		cmd.SetVersionTemplate("dynamod version {{.Version}}\n" + noLibraries + "\n")
	}
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	table.AddFlags(cmd.Flags(), "")
	cmd.Flags().StringVar(&token, "join", "", "token of a cluster to join, a file with one, or - for standard input [$DYNAMOD_JOIN]")
	cmd.Flags().BoolVar(&check, "check-config", false, "validate the configuration, say where it comes from, and exit")
	cmd.AddCommand(gpusCommand(stdout), versionCommand(stdout), movedCommand("bench"), movedCommand("gpu-check"))
	addCompletion(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, origins, err := config.LoadDynamod(config.Process(cmd.Flags()))
		if err != nil {
			return usageError{err}
		}
		if cmd.Flags().Changed("join") {
			cfg.Join = config.Secret(token)
		}
		m, err := meet(&cfg, origins, os.Stdin)
		if err == nil {
			err = origins.Locate(cfg.Validate())
		}
		if err != nil {
			return usageError{err}
		}
		if check {
			for _, w := range origins.Warnings() {
				_, _ = fmt.Fprintf(stderr, "dynamod: warning: %s\n", w) // the answer is what counts
			}
			where := origins.File()
			if where == "" {
				where = "no file, defaults and environment"
			}
			_, err := fmt.Fprintf(stdout, "configuration is valid (%s)\n", where)
			return err
		}
		if err := m.join(); err != nil {
			return err
		}
		return run(cfg, origins, stderr)
	}
	return cmd
}

// noLibraries is the version's remark for a program built with the tag nodl.
const noLibraries = "fully static: without loading of libraries, so without UCX"

// movedCommand refuses a command that moved to dynlab and names the new one.
func movedCommand(name string) *cobra.Command {
	return &cobra.Command{
		Use: name, Hidden: true, DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error {
			return usageError{fmt.Errorf("%s is a command of dynlab: run %s", name, strings.Join(append([]string{"dynlab", name}, args...), " "))}
		},
	}
}

// noArgs rejects positional arguments as a usage error.
func noArgs(cmd *cobra.Command, args []string) error {
	if err := cobra.NoArgs(cmd, args); err != nil {
		return usageError{err}
	}
	return nil
}

// run runs the agent until a signal.
func run(cfg config.Dynamod, origins *config.Origins, stderr *os.File) error {
	ctx, stop := context.WithCancelCause(context.Background())
	defer stop(nil)
	hurry, stopNow := context.WithCancelCause(context.Background())
	defer stopNow(nil)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt)
	defer signal.Stop(signals)
	go func() {
		for n := 0; ; n++ {
			select {
			case s := <-signals:
				if n == 0 {
					stop(fmt.Errorf("signal %s", s))
				} else {
					signal.Stop(signals) // a third signal kills the process
					stopNow(fmt.Errorf("second signal %s", s))
				}
			case <-hurry.Done():
				return
			}
		}
	}()
	a, err := agent.New(cfg, agent.Options{Version: version.String(), Settings: own(origins), Log: slog.New(terminalHandler(cfg, stderr))})
	if err != nil {
		return err
	}
	for _, w := range origins.Warnings() {
		a.Log().Warn("configuration", "warning", w)
	}
	return a.Run(ctx, hurry)
}

// own are the run-time settings that the configuration sets.
func own(origins *config.Origins) map[string]cluster.NodeSetting {
	out := map[string]cluster.NodeSetting{}
	for _, k := range config.RuntimeKeys() {
		if v, ok := origins.Of(k.Name); ok && origins.Set(k.Name) {
			out[k.Name] = cluster.NodeSetting{Value: v.Text(), Origin: v.Origin.String()}
		}
	}
	return out
}

// terminalHandler logs to standard error. If that is the file in which dynctl keeps the
// output of a dynamod in the background, only errors go there: the full log is beside it, where
// its size is bounded.
func terminalHandler(cfg config.Dynamod, stderr *os.File) slog.Handler {
	if kept(cfg, stderr) {
		return slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelError})
	}
	return cfg.Log.Handler(stderr)
}

// kept reports whether f is the file for the output of this node.
func kept(cfg config.Dynamod, f *os.File) bool {
	c, err := statedir.Open(cfg.StateDir, cfg.Cluster)
	if err != nil {
		return false
	}
	n, err := c.Node(cfg.Node.Name)
	if err != nil {
		return false
	}
	its, err := os.Stat(n.Output())
	if err != nil {
		return false
	}
	info, err := f.Stat()
	return err == nil && os.SameFile(info, its)
}
