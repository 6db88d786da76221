package credentials

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/cli/command"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/cli/output"
	"github.com/dynctl/dynctl/internal/cli/session"
	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/credentials"
	"github.com/dynctl/dynctl/internal/statedir"
)

// JoinCommand makes this machine one of a cluster whose stores run elsewhere.
func JoinCommand(a *command.App) *cobra.Command {
	return a.Command(command.Verb{
		Use: "join <token>", Short: "Make a cluster elsewhere known on this machine", Group: command.GroupRun, Local: true,
		Long: `The token is what dynctl credentials --join prints on a machine of the cluster; it may also
be the name of a file that holds it, or - for standard input, which keeps it from other users
of this machine and from the shell's history. Secret and addresses are kept in the state
directory: from then on dynctl reaches the cluster, and a dynamod that is started here
belongs to it.`,
		Examples: []string{
			"dynctl join -            # the token on standard input",
			"dynctl credentials --join | ssh gpu-7 dynctl join -",
			"dynctl join token.txt --cluster lab   # under another name",
		},
		See:  []string{"dynctl credentials", "dynctl up"},
		Args: oneToken,
		Options: func(s *session.Session, args []string) command.Runner {
			return &JoinOptions{Session: s, Token: args[0]}
		},
	})
}

func oneToken(_ *cobra.Command, args []string) error {
	if len(args) != 1 || args[0] == "" {
		return errors.New("give one join token, a file that contains it, or - for standard input")
	}
	return nil
}

// JoinOptions make this machine one of a cluster whose stores run elsewhere.
type JoinOptions struct {
	Session *session.Session
	Token   string // itself, the name of a file that holds it, or -
}

// Run keeps what the token says.
func (o *JoinOptions) Run(context.Context) error {
	s := o.Session
	const action = "cannot join"
	arg := o.Token
	if arg != "-" && !credentials.IsToken(arg) {
		arg = s.Env.Path(arg)
	}
	text, err := credentials.ReadToken(arg, s.Out.Streams.In)
	if err != nil {
		return &exit.UsageError{Text: err.Error()}
	}
	token, err := credentials.ParseToken(text)
	if err != nil {
		return &exit.UsageError{Text: err.Error()}
	}
	cfg := s.Config
	if v, ok := s.Origins.Of("cluster"); ok && v.Origin.Kind == config.FromDefault && token.Cluster != "" {
		cfg.Cluster = token.Cluster
	}
	cfg.Namespace, cfg.NATS.URL = token.Namespace, token.NATS
	cfg.Discovery, cfg.Etcd.Endpoints = config.DiscoveryAt(token.Etcd)
	if err := cfg.Validate(); err != nil {
		return &exit.Failure{Action: action, Err: fmt.Errorf("join token: %w", err)}
	}
	local, err := statedir.Open(cfg.StateDir, cfg.Cluster)
	if err != nil {
		return &exit.Failure{Action: action, Err: err}
	}
	if secret, err := credentials.Load(local.SecretPath()); err == nil && secret == token.Secret && hosts(local) {
		return &exit.Failure{Action: action, Err: fmt.Errorf("the store of cluster %s is on this machine", cfg.Cluster), Tries: []string{"dynctl up"}}
	}
	if err := local.Join(token); err != nil {
		return &exit.Failure{Action: action, Err: err}
	}
	if s.Out.Prose() {
		flag := ""
		if cfg.Cluster != config.DefaultCluster {
			flag = " --cluster " + cfg.Cluster
		}
		at := strings.Join(token.Etcd, ", ")
		if _, ok := config.StoreBucket(token.Etcd); ok {
			at = token.NATS
		}
		s.Out.Tell("joined %s at %s", cfg.Cluster, human.Address(at))
		s.Out.Tell("try: dynctl ps%s", flag)
		s.Out.Tell("try: dynamod%s --node-name NAME --node-advertise-host ADDRESS   for a node here", flag)
	}
	return s.Out.Answer(output.Answer{
		Data: struct {
			Cluster   string   `json:"cluster"`
			Namespace string   `json:"namespace"`
			Etcd      []string `json:"etcd"`
			NATS      string   `json:"nats"`
		}{cfg.Cluster, token.Namespace, token.Etcd, token.NATS},
		Names: []string{cfg.Cluster},
	})
}

// hosts reports whether the store of a cluster is on this machine.
func hosts(local statedir.Cluster) bool {
	_, ok, err := local.Backend()
	return ok && err == nil
}
