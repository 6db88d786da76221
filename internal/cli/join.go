package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/credentials"
	"github.com/dynctl/dynctl/internal/statedir"
)

// join makes this machine one of a cluster whose stores run elsewhere.
func (f *factory) join() *cobra.Command {
	return f.command(verb{
		use: "join <token>", short: "Make a cluster elsewhere known on this machine", group: groupRun, local: true,
		long: `The token is what dynctl credentials --join prints on a machine of the cluster; it may also
be the name of a file that holds it, or - for standard input, which keeps it from other users
of this machine and from the shell's history. Secret and addresses are kept in the state
directory: from then on dynctl reaches the cluster, and a dynamod that is started here
belongs to it.`,
		examples: []string{
			"dynctl join -            # the token on standard input",
			"dynctl credentials --join | ssh gpu-7 dynctl join -",
			"dynctl join token.txt --cluster lab   # under another name",
		},
		see:  []string{"dynctl credentials", "dynctl up"},
		args: oneToken,
		run:  runJoin,
	})
}

func oneToken(_ *cobra.Command, args []string) error {
	if len(args) != 1 || args[0] == "" {
		return errors.New("give one token, the name of a file with it, or -")
	}
	return nil
}

func runJoin(_ context.Context, inv *invocation, args []string) error {
	const action = "cannot join"
	arg := args[0]
	if arg != "-" && !credentials.IsToken(arg) {
		arg = inv.path(arg)
	}
	text, err := credentials.ReadToken(arg, inv.env.Streams.In)
	if err != nil {
		return &usageError{text: err.Error()}
	}
	token, err := credentials.ParseToken(text)
	if err != nil {
		return &usageError{text: err.Error()}
	}
	cfg := inv.cfg
	if v, ok := inv.origins.Of("cluster"); ok && v.Origin.Kind == config.FromDefault && token.Cluster != "" {
		cfg.Cluster = token.Cluster
	}
	cfg.Namespace, cfg.Etcd.Endpoints, cfg.NATS.URL = token.Namespace, token.Etcd, token.NATS
	if err := cfg.Validate(); err != nil {
		return &failure{action: action, err: fmt.Errorf("join token: %w", err)}
	}
	local, err := statedir.Open(cfg.StateDir, cfg.Cluster)
	if err != nil {
		return &failure{action: action, err: err}
	}
	if secret, err := credentials.Load(local.SecretPath()); err == nil && secret == token.Secret && local.HostsEtcd() {
		return &failure{action: action, err: fmt.Errorf("the etcd of cluster %s is on this machine", cfg.Cluster), tries: []string{"dynctl up"}}
	}
	if err := local.Join(token); err != nil {
		return &failure{action: action, err: err}
	}
	if inv.prose() {
		flag := ""
		if cfg.Cluster != config.DefaultCluster {
			flag = " --cluster " + cfg.Cluster
		}
		inv.tell("joined %s at %s", cfg.Cluster, bare(strings.Join(token.Etcd, ", ")))
		inv.tell("try: dynctl ps%s", flag)
		inv.tell("try: dynamod%s --node-name NAME --node-advertise-host ADDRESS   for a node here", flag)
	}
	return inv.answer(answer{
		data: struct {
			Cluster   string   `json:"cluster"`
			Namespace string   `json:"namespace"`
			Etcd      []string `json:"etcd"`
			NATS      string   `json:"nats"`
		}{cfg.Cluster, token.Namespace, token.Etcd, token.NATS},
		names: []string{cfg.Cluster},
	})
}

// token makes one with which other machines reach the cluster.
func (inv *invocation) token(e statedir.Endpoints, secret credentials.Secret) (string, error) {
	t := credentials.Token{Cluster: inv.cfg.Cluster, Namespace: e.Namespace, NATS: at(e.NATS, e.Host), Secret: secret}
	for _, addr := range e.Etcd {
		t.Etcd = append(t.Etcd, at(addr, e.Host))
	}
	for _, addr := range append([]string{t.NATS}, t.Etcd...) {
		if addr != "" && ofThisMachineOnly(addr) {
			return "", fmt.Errorf("%s can be reached from this machine only", bare(addr))
		}
	}
	return t.Encode()
}

// at puts another host into the address of a server inside a dynamod.
func at(addr, host string) string {
	rest, ok := strings.CutPrefix(addr, config.SchemeDynamod)
	_, port, err := net.SplitHostPort(rest)
	if !ok || host == "" || err != nil {
		return addr
	}
	return config.SchemeDynamod + net.JoinHostPort(host, port)
}

func ofThisMachineOnly(addr string) bool {
	host, _, err := net.SplitHostPort(bare(addr))
	ip := net.ParseIP(host)
	return err == nil && (host == "localhost" || ip != nil && ip.IsLoopback())
}

// joinLine is what starts a node on another machine. The token is handed over as a
// variable: every user of a machine can read the arguments of a process.
func (inv *invocation) joinLine(e statedir.Endpoints) (string, error) {
	secret, err := client.Secret(inv.cfg)
	if err != nil {
		return "", err
	}
	token, err := inv.token(e, secret)
	if err != nil {
		return "", err
	}
	return "DYNAMOD_JOIN=" + token + " dynamod --node-name NAME --node-advertise-host ADDRESS", nil
}
