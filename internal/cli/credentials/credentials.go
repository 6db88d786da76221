package credentials

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/cli/command"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/cli/jointoken"
	"github.com/dynctl/dynctl/internal/cli/launch"
	"github.com/dynctl/dynctl/internal/cli/output"
	"github.com/dynctl/dynctl/internal/cli/session"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/credentials"
	"github.com/dynctl/dynctl/internal/ownerfile"
	"github.com/dynctl/dynctl/internal/statedir"
)

// Options shows the cluster's secret by its name, hands it on, or makes another.
type Options struct {
	Session *session.Session

	Join, Rotate, Token, Attach bool
	Export                      string
	Days                        int
}

// Command makes dynctl credentials.
func Command(a *command.App) *cobra.Command {
	o := &Options{}
	cmd := a.Command(command.Verb{
		Use: "credentials", Short: "Show the cluster's credentials, hand them on, or make new ones", Group: command.GroupOther, Local: true,
		Long: `All programs of a cluster share a secret, which the first dynamod made. The etcd and NATS
inside a dynamod admit only clients with it, or with a certificate that was made with it.
Only the fingerprint of the secret is shown.

--join prints a token for another machine; anyone with it can join the cluster.
--export writes a certificate for tools such as etcdctl and nats, and prints the variables
they need; anyone with its key can read and change everything in etcd and NATS until the
certificate ends, or the secret is another one.
--token prints the token with which curl calls endpoints of nodes that serve requests over
HTTP (request_plane.mode); anyone with it can call all of them until the secret is another one.
--attach prints the variables with which a program of this machine attaches itself to its node
as a service: the address and a token, with which anyone here can answer in place of workers.
--rotate makes another secret while nothing of the cluster runs on this machine. Other
machines then join again: there, remove the old secret, whose file dynctl credentials names.`,
		Examples: []string{
			"dynctl credentials --join | ssh gpu-7 dynctl join -",
			"eval \"$(dynctl credentials --export ~/.dynctl-etcd)\"; etcdctl get --prefix /dynctl/",
			"eval \"$(dynctl credentials --attach)\"; python3 examples/python/hello.py",
		},
		See: []string{"dynctl join", "dynctl up"},
		Options: func(s *session.Session, _ []string) command.Runner {
			o.Session = s
			return o
		},
	})
	fs := cmd.Flags()
	fs.BoolVar(&o.Join, "join", false, "print a token with which other machines join")
	fs.StringVar(&o.Export, "export", "", "write certificates for other tools into this directory")
	command.Count(fs, &o.Days, "days", 365, "after how many days an exported certificate ends")
	fs.BoolVar(&o.Token, "token", false, "print the token for requests over HTTP")
	fs.BoolVar(&o.Attach, "attach", false, "print the variables for services that attach themselves")
	fs.BoolVar(&o.Rotate, "rotate", false, "make a new secret, for a cluster that does not run")
	_ = cmd.MarkFlagDirname("export") // fails for unknown flags only
	return cmd
}

// secretPath is the file with the cluster's secret.
func secretPath(s *session.Session) (string, error) {
	if s.Config.SecretFile != "" {
		return s.Env.Path(s.Config.SecretFile), nil
	}
	local, err := s.Local()
	if err != nil {
		return "", err
	}
	return local.SecretPath(), nil
}

// Run shows credentials, hands them on, or makes new ones.
func (o *Options) Run(ctx context.Context) error {
	const action = "cannot show credentials"
	if o.Session.Given("export") && o.Export == "" {
		return &exit.UsageError{Text: "--export: no directory given"}
	}
	chosen := 0
	for _, given := range []bool{o.Join, o.Token, o.Attach, o.Rotate, o.Export != ""} {
		if given {
			chosen++
		}
	}
	if chosen > 1 {
		return &exit.UsageError{Text: "--join, --export, --token, --attach and --rotate: choose one"}
	}
	if o.Days < 1 || o.Days > 36500 {
		return &exit.UsageError{Text: fmt.Sprintf("--days: %d is not between 1 and 36500", o.Days)}
	}
	if o.Rotate {
		return o.renew(ctx)
	}
	secret, err := client.Secret(o.Session.Config)
	if err != nil {
		return &exit.Failure{Action: action, Err: err, Tries: []string{"dynctl up", "dynctl join TOKEN, for a cluster elsewhere"}}
	}
	if o.Token {
		return o.printRequestToken(client.HTTPToken(secret))
	}
	if o.Attach {
		return o.printAttach(ctx, client.AttachToken(secret))
	}
	e, err := stores(o.Session)
	switch {
	case errors.Is(err, statedir.ErrNotRunning) && !o.Join && o.Export == "":
	case errors.Is(err, statedir.ErrNotRunning):
		return o.Session.NotRunning(action)
	case err != nil:
		return &exit.Failure{Action: action, Err: err}
	}
	switch {
	case o.Join:
		return o.printToken(e, secret)
	case o.Export != "":
		return o.writeFiles(e, secret)
	}
	return o.show(e, secret)
}

// stores returns the addresses of the cluster's etcd and NATS.
func stores(s *session.Session) (statedir.Endpoints, error) {
	if s.External() {
		return statedir.Endpoints{Namespace: s.Config.Namespace, Etcd: s.Config.Etcd.Endpoints, NATS: s.Config.NATS.URL}, nil
	}
	local, err := s.Local()
	if err != nil {
		return statedir.Endpoints{}, err
	}
	e, err := local.Endpoints()
	if err == nil && (s.Named || e.Namespace == "") {
		e.Namespace = s.Config.Namespace
	}
	return e, err
}

// View describes a cluster's credentials, as -o json prints it.
type View struct {
	Cluster     string   `json:"cluster"`
	Fingerprint string   `json:"fingerprint"`
	SecretFile  string   `json:"secret_file"`
	Authority   string   `json:"authority"` // SHA-256 of its certificate
	Etcd        []string `json:"etcd"`
	NATS        string   `json:"nats"`
	// Reached is the address at which other machines reach etcd, or "this machine only".
	Reached string `json:"reached"`
}

func (o *Options) show(e statedir.Endpoints, secret credentials.Secret) error {
	ca, err := secret.Authority()
	if err != nil {
		return err
	}
	path, err := secretPath(o.Session)
	if err != nil {
		return err
	}
	v := View{
		Cluster: o.Session.Config.Cluster, Fingerprint: secret.Fingerprint(), SecretFile: path, Authority: ca.Fingerprint(),
		Etcd: append([]string{}, e.Etcd...), NATS: e.NATS, Reached: "",
	}
	at := e.Etcd
	if d, _ := config.DiscoveryAt(at); d.Backend != config.BackendEtcd {
		at = []string{e.NATS}
	}
	for _, addr := range at {
		if addr = jointoken.At(addr, e.Host); jointoken.LocalOnly(addr) {
			v.Reached = "this machine only"
		} else {
			v.Reached = human.Address(addr)
		}
	}
	t := output.NewTable("CLUSTER", "SECRET", "FILE", "STORE", "NATS", "REACHED AT")
	t.Add(v.Cluster, v.Fingerprint, v.SecretFile, human.OrDash(strings.Join(v.Etcd, ",")), human.OrDash(v.NATS), human.OrDash(v.Reached))
	return o.Session.Out.Answer(output.Answer{Data: v, Table: func(bool) *output.Table { return t }, Names: []string{v.Fingerprint}})
}

func (o *Options) printToken(e statedir.Endpoints, secret credentials.Secret) error {
	token, err := jointoken.New(o.Session, e, secret)
	if err != nil {
		return &exit.Failure{
			Action: "cannot make a join token", Err: err,
			Tries: []string{"dynctl down, then dynctl up --advertise-host ADDRESS, an address of this machine that others reach"},
		}
	}
	if o.Session.Out.Prose() {
		o.Session.Out.Note("anyone with this token can join the cluster; on another machine:")
		o.Session.Out.Note("DYNAMOD_JOIN=TOKEN dynamod --node-name NAME --node-advertise-host ADDRESS, or dynctl join -")
	}
	return o.Session.Out.Answer(output.Answer{Data: struct {
		Token string `json:"token"`
	}{token}, Names: []string{token}, Text: token + "\n"})
}

func (o *Options) printRequestToken(token string) error {
	if o.Session.Out.Prose() {
		o.Session.Out.Note("anyone with this token can call every endpoint of nodes that serve requests over HTTP")
	}
	return o.Session.Out.Answer(output.Answer{Data: struct {
		Token string `json:"token"`
	}{token}, Names: []string{token}, Text: token + "\n"})
}

// printAttach prints what a program needs to attach itself to the node of this machine.
func (o *Options) printAttach(ctx context.Context, token string) error {
	const action = "cannot attach a program"
	c, err := o.Session.Connect(ctx, action)
	if err != nil {
		return err
	}
	v, err := c.View(ctx)
	if err != nil {
		return &exit.Failure{Action: action, Err: err}
	}
	node, ok := v.NodeHere()
	if !ok {
		return &exit.Failure{Action: action, Err: errors.New("no node runs on this machine")}
	}
	env := []string{"DYNAMOD_STATUS=" + node.StatusURL, "DYNAMOD_ATTACH_TOKEN=" + token}
	var text strings.Builder
	writeExports(&text, env)
	if o.Session.Out.Prose() {
		o.Session.Out.Note("anyone with this token, on this machine, can answer in the place of workers")
	}
	return o.Session.Out.Answer(output.Answer{Data: struct {
		Env []string `json:"env"`
	}{env}, Names: env, Text: text.String()})
}

// writeExports writes variables, each as NAME=value, in the form of a shell.
func writeExports(w io.Writer, env []string) {
	for _, v := range env {
		name, value, _ := strings.Cut(v, "=")
		_, _ = fmt.Fprintf(w, "export %s=%s\n", name, human.ShellQuote(value)) // never fails
	}
}

// exported are files for other tools and the variables that name them.
type exported struct {
	CA    string    `json:"ca"`
	Cert  string    `json:"cert"`
	Key   string    `json:"key"`
	Until time.Time `json:"until"`
	Env   []string  `json:"env"` // NAME=value
}

func (o *Options) writeFiles(e statedir.Endpoints, secret credentials.Secret) error {
	const action = "cannot export credentials"
	withEtcd, withNATS := (config.EtcdClient{Endpoints: e.Etcd}).InDynamod(), (config.NATSClient{URL: e.NATS}).InDynamod()
	if d, _ := config.DiscoveryAt(e.Etcd); !withEtcd && (d.Backend == config.BackendEtcd || !withNATS) {
		return &exit.Failure{Action: action, Err: fmt.Errorf("the store at %s does not run inside a dynamod: it has credentials of its own", strings.Join(e.Etcd, ", "))}
	}
	ca, err := secret.Authority()
	if err != nil {
		return &exit.Failure{Action: action, Err: err}
	}
	until := o.Session.Out.Now().UTC().Truncate(time.Second).AddDate(0, 0, o.Days)
	pair, err := ca.Client("dynctl-export", until)
	if err != nil {
		return &exit.Failure{Action: action, Err: err}
	}
	dir := o.Session.Env.Path(o.Export)
	x := exported{CA: filepath.Join(dir, "ca.pem"), Cert: filepath.Join(dir, "client.pem"), Key: filepath.Join(dir, "client-key.pem"), Until: until}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return &exit.Failure{Action: action, Err: err}
	}
	for _, f := range []struct {
		path string
		body []byte
	}{{x.CA, ca.PEM()}, {x.Key, pair.Key}, {x.Cert, pair.Cert}} {
		if err := ownerfile.Replace(f.path, f.body); err != nil {
			return &exit.Failure{Action: action, Err: err}
		}
	}
	var etcd []string
	for _, addr := range e.Etcd {
		etcd = append(etcd, "https://"+human.Address(addr))
	}
	if withEtcd {
		x.Env = []string{
			"ETCDCTL_API=3", "ETCDCTL_ENDPOINTS=" + strings.Join(etcd, ","),
			"ETCDCTL_CACERT=" + x.CA, "ETCDCTL_CERT=" + x.Cert, "ETCDCTL_KEY=" + x.Key,
		}
	}
	var text strings.Builder
	if withNATS {
		x.Env = append(x.Env, "NATS_URL=tls://"+human.Address(e.NATS), "NATS_CA="+x.CA, "NATS_CERT="+x.Cert, "NATS_KEY="+x.Key)
	}
	writeExports(&text, x.Env)
	if o.Session.Out.Prose() {
		o.Session.Out.Note("the certificate in %s ends on %s; anyone with its key can change everything in the cluster's store and NATS", dir, until.Format(time.DateOnly))
		o.Session.Out.Note("etcdctl needs no flags; nats needs --tlsfirst")
	}
	return o.Session.Out.Answer(output.Answer{Data: x, Names: []string{x.CA, x.Cert, x.Key}, Text: text.String()})
}

// renew makes another secret.
func (o *Options) renew(ctx context.Context) error {
	const action = "cannot make a new secret"
	local, err := o.Session.Local()
	if err != nil {
		return err
	}
	path, err := secretPath(o.Session)
	if err != nil {
		return err
	}
	old, err := client.Secret(o.Session.Config)
	if err != nil {
		return &exit.Failure{Action: action, Err: err, Tries: []string{"dynctl up"}}
	}
	if o.Session.External() && (config.EtcdClient{Endpoints: o.Session.Config.Etcd.Endpoints}).InDynamod() {
		return &exit.Failure{Action: action, Err: errors.New("the store of this cluster is on another machine: make the new secret there")}
	}
	lock, err := local.LockStart(ctx)
	if err != nil {
		return &exit.Failure{Action: action, Err: err}
	}
	defer func() {
		if err := lock.Release(); err != nil {
			o.Session.Out.Warn("start lock not released: %v", err)
		}
	}()
	running, err := launch.List(local)
	if err != nil {
		return &exit.Failure{Action: action, Err: err}
	}
	if len(running) > 0 {
		return &exit.Failure{
			Action: action, Err: fmt.Errorf("%s runs on this machine, as process %d", running[0].Node.Name, running[0].PID),
			Facts: []string{"all programs of a cluster change at once: stop those on other machines, too"}, Tries: []string{"dynctl down"},
		}
	}
	made := credentials.New()
	if err := credentials.Replace(path, made); err != nil {
		return &exit.Failure{Action: action, Err: err}
	}
	if o.Session.Out.Prose() {
		o.Session.Out.Tell("%s has a new secret, %s in place of %s", o.Session.Config.Cluster, made.Fingerprint(), old.Fingerprint())
		o.Session.Out.Note("certificates and tokens made with the old one are invalid after the next start")
		o.Session.Out.Note("other machines join again with a new token; there, first remove the old secret that dynctl credentials names")
	}
	return o.Session.Out.Answer(output.Answer{Data: struct {
		Cluster     string `json:"cluster"`
		Fingerprint string `json:"fingerprint"`
		Was         string `json:"was"`
	}{o.Session.Config.Cluster, made.Fingerprint(), old.Fingerprint()}, Names: []string{made.Fingerprint()}})
}
