package certs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dynctl/dynctl/internal/certs"
	"github.com/dynctl/dynctl/internal/cli/command"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/session"
)

// Command makes dynctl certs.
func Command(a *command.App) *cobra.Command {
	return command.Group(command.Verb{
		Use: "certs <command>", Short: "Make certificates for TLS between clients, nodes, etcd and NATS", Group: command.GroupOther,
		Long: `For etcd and NATS of your own, and for HTTPS and KV transfers with certificates. The etcd and
NATS inside a dynamod need none: they make theirs from the cluster's secret.`,
		Examples: []string{
			"dynctl certs init gpu-1=10.0.0.5 gpu-2=10.0.0.6",
			"dynctl certs issue gpu-3 --host 10.0.0.7",
			"dynctl certs show",
		},
		See: []string{"dynctl credentials"},
	}, initCommand(a), issueCommand(a), showCommand(a))
}

// folder is what all commands have in common.
type folder struct {
	Session *session.Session
	Dir     string
}

func (f *folder) flag(fs *pflag.FlagSet) {
	fs.StringVar(&f.Dir, "dir", "", "directory of the certificates (default certs/CLUSTER in the state directory)")
}

// open returns the directory of the certificates.
func (f *folder) open() (certs.Folder, error) {
	if f.Session.Given("dir") && f.Dir == "" {
		return certs.Folder{}, &exit.UsageError{Text: "--dir: no directory given"}
	}
	dir := f.Session.Env.Path(f.Dir)
	if f.Dir == "" {
		// Not within the directory of the cluster, which dynctl down --purge deletes.
		dir = filepath.Join(f.Session.Config.StateDir, "certs", f.Session.Config.Cluster)
	}
	return certs.Folder{Dir: dir, Now: f.Session.Out.Now}, nil
}

// days checks how long a certificate shall last.
func days(flag string, n int) error {
	if n < 1 || n > 36500 {
		return &exit.UsageError{Text: fmt.Sprintf("--%s: %d is not between 1 and 36500", flag, n)}
	}
	return nil
}

// failure says what to do about an error of a folder.
func failure(action string, err error) error {
	f := &exit.Failure{Action: action, Err: err}
	switch {
	case errors.Is(err, certs.ErrExists):
		f.Facts = []string{"nothing is overwritten"}
		f.Tries = []string{"dynctl certs show", "dynctl certs issue NAME --renew", "--dir DIR   for other ones"}
	case errors.Is(err, fs.ErrNotExist):
		f.Tries = []string{"dynctl certs show", "dynctl certs init"}
	}
	return f
}

// InitOptions make an authority and the certificates of a cluster.
type InitOptions struct {
	folder
	Nodes        []string // NAME or NAME=HOST,HOST
	Days, CADays int
}

// clientName is the certificate with which nodes and dynctl connect.
const clientName = "client"

func initCommand(a *command.App) *cobra.Command {
	o := &InitOptions{}
	cmd := a.Command(command.Verb{
		Use: "init [node[=host,...]...]", Short: "Make a certificate authority, and certificates for nodes and clients", Local: true,
		Long: `Makes ca.pem and ca-key.pem, one pair for clients, which nodes and dynctl use, and one for the
servers of each node: its name, the hosts after =, localhost and loopback are in it. Without
nodes, it is for this machine. Keys are ECDSA P-256, files are for their owner only, and
nothing is overwritten. Says what to copy where, and which settings to write.`,
		Examples: []string{
			"dynctl certs init",
			"dynctl certs init gpu-1=10.0.0.5 gpu-2=10.0.0.6,gpu-2.example.com",
			"dynctl certs init --dir ~/lab-certs --days 90",
		},
		See: []string{"dynctl certs issue", "dynctl certs show"}, Args: cobra.ArbitraryArgs,
		Options: func(s *session.Session, args []string) command.Runner {
			o.Session, o.Nodes = s, args
			return o
		},
	})
	fs := cmd.Flags()
	o.flag(fs)
	command.Count(fs, &o.Days, "days", 365, "after how many days the certificates end")
	command.Count(fs, &o.CADays, "ca-days", 3650, "after how many days the authority ends")
	_ = cmd.MarkFlagDirname("dir") // fails for unknown flags only
	return cmd
}

// Run makes them.
func (o *InitOptions) Run(context.Context) error {
	const action = "cannot make certificates"
	if err := errors.Join(days("days", o.Days), days("ca-days", o.CADays)); err != nil {
		return err
	}
	dir, err := o.open()
	if err != nil {
		return err
	}
	requests, err := o.requests()
	if err != nil {
		return err
	}
	made := made{Dir: dir.Dir}
	authority, err := dir.Init(o.CADays)
	if err != nil {
		return failure(action, err)
	}
	made.Certificates = append(made.Certificates, authority)
	for _, r := range requests {
		c, err := dir.Issue(r)
		if err != nil {
			return failure(action, err)
		}
		made.Certificates = append(made.Certificates, c)
	}
	return made.tell(o.Session, made.Certificates[2], len(o.Nodes) == 0)
}

// requests are the certificates to make, that of clients first.
func (o *InitOptions) requests() ([]certs.Request, error) {
	nodes := o.Nodes
	if len(nodes) == 0 {
		host, err := os.Hostname()
		if err != nil {
			host = "localhost"
		}
		nodes = []string{host}
	}
	all := []certs.Request{{Name: clientName, Client: true, Days: o.Days}}
	seen := map[string]bool{clientName: true}
	for _, text := range nodes {
		name, hosts, _ := strings.Cut(text, "=")
		r := certs.Request{Name: name, Days: o.Days}
		if hosts != "" {
			r.Hosts = strings.Split(hosts, ",")
		}
		err := r.Check()
		if err == nil && seen[name] {
			err = errors.New("named twice, or as the certificate of clients")
		}
		if err != nil {
			return nil, &exit.UsageError{Text: fmt.Sprintf("%s: %v", text, err)}
		}
		seen[name] = true
		all = append(all, r)
	}
	return all, nil
}

// IssueOptions make one more certificate.
type IssueOptions struct {
	folder
	Name          string
	Hosts         []string
	Client, Renew bool
	Days          int
}

func issueCommand(a *command.App) *cobra.Command {
	o := &IssueOptions{}
	cmd := a.Command(command.Verb{
		Use: "issue <name>", Short: "Make one more certificate, or renew one", Local: true,
		Long: `The certificate is for the servers of a node, as those of dynctl certs init, or for a client
with --client. --renew replaces a certificate and its key by new ones for the same hosts;
copied over the old files, they are used within seconds, without a restart.`,
		Examples: []string{
			"dynctl certs issue gpu-3 --host 10.0.0.7 --host gpu-3.example.com",
			"dynctl certs issue monitoring --client --days 30",
			"dynctl certs issue gpu-1 --renew",
		},
		See: []string{"dynctl certs init", "dynctl certs show"}, Args: oneName,
		Options: func(s *session.Session, args []string) command.Runner {
			o.Session, o.Name = s, args[0]
			return o
		},
	})
	fs := cmd.Flags()
	o.flag(fs)
	fs.StringSliceVar(&o.Hosts, "host", nil, "name or address at which the servers are reached, beside name and loopback")
	fs.BoolVar(&o.Client, "client", false, "for a client, without hosts")
	fs.BoolVar(&o.Renew, "renew", false, "replace the certificate of that name")
	command.Count(fs, &o.Days, "days", 365, "after how many days the certificate ends")
	_ = cmd.MarkFlagDirname("dir") // fails for unknown flags only
	return cmd
}

func oneName(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return errors.New("give one name for the certificate, such as that of a node")
	}
	return nil
}

// Run makes it.
func (o *IssueOptions) Run(context.Context) error {
	if err := days("days", o.Days); err != nil {
		return err
	}
	r := certs.Request{Name: o.Name, Client: o.Client, Hosts: o.Hosts, Days: o.Days, Renew: o.Renew}
	if err := r.Check(); err != nil {
		return &exit.UsageError{Text: fmt.Sprintf("%s: %v", o.Name, err)}
	}
	dir, err := o.open()
	if err != nil {
		return err
	}
	c, err := dir.Issue(r)
	if err != nil {
		return failure("cannot make a certificate", err)
	}
	return made{Dir: dir.Dir, Certificates: []certs.Certificate{c}}.tell(o.Session, c, false)
}
