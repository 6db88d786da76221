package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/cli/launch"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/credentials"
	"github.com/dynctl/dynctl/internal/ownerfile"
	"github.com/dynctl/dynctl/internal/statedir"
)

// credentialsCommand shows the cluster's secret by its name, hands it on, or makes another.
type credentialsCommand struct {
	join, rotate bool
	export       string
	days         int
}

func (f *factory) credentials() *cobra.Command {
	o := &credentialsCommand{}
	cmd := f.command(verb{
		use: "credentials", short: "Show the cluster's credentials, hand them on, or make new ones", group: groupOther, local: true,
		long: `All programs of a cluster share a secret, which the first dynamod made. The etcd and NATS
inside a dynamod let in only who has it, or a certificate that was made with it. The secret
itself is not shown: it is named by its fingerprint.

--join prints a token for another machine; whoever has it belongs to the cluster.
--export writes a certificate for tools such as etcdctl and nats, and prints the variables
they need; whoever has its key may read and change everything in etcd and NATS until the
certificate ends, or the secret is another one.
--rotate makes another secret while nothing of the cluster runs on this machine. Other
machines then join again: there, remove the old secret, whose file dynctl credentials names.`,
		examples: []string{
			"dynctl credentials",
			"dynctl credentials --join | ssh gpu-7 dynctl join -",
			"eval \"$(dynctl credentials --export ~/.dynctl-etcd)\"; etcdctl get --prefix /dynctl/",
		},
		see: []string{"dynctl join", "dynctl up"},
		run: o.run,
	})
	fs := cmd.Flags()
	fs.BoolVar(&o.join, "join", false, "print a token with which other machines join")
	fs.StringVar(&o.export, "export", "", "write certificates for other tools into this directory")
	countVar(fs, &o.days, "days", 365, "after how many days an exported certificate ends")
	fs.BoolVar(&o.rotate, "rotate", false, "make a new secret, for a cluster that does not run")
	_ = cmd.MarkFlagDirname("export") // fails for unknown flags only
	return cmd
}

// secretPath is the file with the cluster's secret.
func (inv *invocation) secretPath() (string, error) {
	if inv.cfg.SecretFile != "" {
		return inv.path(inv.cfg.SecretFile), nil
	}
	local, err := inv.local()
	if err != nil {
		return "", err
	}
	return local.SecretPath(), nil
}

func (o *credentialsCommand) run(ctx context.Context, inv *invocation, _ []string) error {
	const action = "cannot show credentials"
	if inv.cmd.Flags().Changed("export") && o.export == "" {
		return &usageError{text: "--export: no directory given"}
	}
	if o.join && o.export != "" || o.join && o.rotate || o.rotate && o.export != "" {
		return &usageError{text: "--join, --export and --rotate: choose one"}
	}
	if o.days < 1 || o.days > 36500 {
		return &usageError{text: fmt.Sprintf("--days: %d is not between 1 and 36500", o.days)}
	}
	if o.rotate {
		return o.renew(ctx, inv)
	}
	secret, err := client.Secret(inv.cfg)
	if err != nil {
		return &failure{action: action, err: err, tries: []string{"dynctl up", "dynctl join TOKEN, for a cluster elsewhere"}}
	}
	e, err := inv.stores()
	switch {
	case errors.Is(err, statedir.ErrNotRunning) && !o.join && o.export == "":
	case errors.Is(err, statedir.ErrNotRunning):
		return inv.notRunning(action)
	case err != nil:
		return &failure{action: action, err: err}
	}
	switch {
	case o.join:
		return o.printToken(inv, e, secret)
	case o.export != "":
		return o.writeFiles(inv, e, secret)
	}
	return o.show(inv, e, secret)
}

// stores are where the cluster's etcd and NATS are.
func (inv *invocation) stores() (statedir.Endpoints, error) {
	if inv.external() {
		return statedir.Endpoints{Namespace: inv.cfg.Namespace, Etcd: inv.cfg.Etcd.Endpoints, NATS: inv.cfg.NATS.URL}, nil
	}
	local, err := inv.local()
	if err != nil {
		return statedir.Endpoints{}, err
	}
	e, err := local.Endpoints()
	if err == nil && (inv.named || e.Namespace == "") {
		e.Namespace = inv.cfg.Namespace
	}
	return e, err
}

// credentialsView is what is known of them, as -o json prints it.
type credentialsView struct {
	Cluster     string   `json:"cluster"`
	Fingerprint string   `json:"fingerprint"`
	SecretFile  string   `json:"secret_file"`
	Authority   string   `json:"authority"` // SHA-256 of its certificate
	Etcd        []string `json:"etcd"`
	NATS        string   `json:"nats"`
	// Reached is where other machines reach etcd, or "this machine only".
	Reached string `json:"reached"`
}

func (o *credentialsCommand) show(inv *invocation, e statedir.Endpoints, secret credentials.Secret) error {
	ca, err := secret.Authority()
	if err != nil {
		return err
	}
	path, err := inv.secretPath()
	if err != nil {
		return err
	}
	v := credentialsView{
		Cluster: inv.cfg.Cluster, Fingerprint: secret.Fingerprint(), SecretFile: path, Authority: ca.Fingerprint(),
		Etcd: append([]string{}, e.Etcd...), NATS: e.NATS, Reached: "",
	}
	for _, addr := range e.Etcd {
		if addr = at(addr, e.Host); ofThisMachineOnly(addr) {
			v.Reached = "this machine only"
		} else {
			v.Reached = bare(addr)
		}
	}
	t := newTable("CLUSTER", "SECRET", "FILE", "ETCD", "NATS", "REACHED AT")
	t.add(v.Cluster, v.Fingerprint, v.SecretFile, orDash(strings.Join(v.Etcd, ",")), orDash(v.NATS), orDash(v.Reached))
	return inv.answer(answer{data: v, table: func(bool) *table { return t }, names: []string{v.Fingerprint}})
}

func (o *credentialsCommand) printToken(inv *invocation, e statedir.Endpoints, secret credentials.Secret) error {
	token, err := inv.token(e, secret)
	if err != nil {
		return &failure{
			action: "cannot make a join token", err: err,
			tries: []string{"dynctl down, then dynctl up --advertise-host ADDRESS, an address of this machine that others reach"},
		}
	}
	if inv.prose() {
		inv.note("whoever has this token belongs to the cluster; on another machine:")
		inv.note("DYNAMOD_JOIN=TOKEN dynamod --node-name NAME --node-advertise-host ADDRESS, or dynctl join -")
	}
	return inv.answer(answer{data: struct {
		Token string `json:"token"`
	}{token}, names: []string{token}, text: token + "\n"})
}

// exported are files for other tools and the variables that name them.
type exported struct {
	CA    string    `json:"ca"`
	Cert  string    `json:"cert"`
	Key   string    `json:"key"`
	Until time.Time `json:"until"`
	Env   []string  `json:"env"` // NAME=value
}

func (o *credentialsCommand) writeFiles(inv *invocation, e statedir.Endpoints, secret credentials.Secret) error {
	const action = "cannot export credentials"
	if !(config.EtcdClient{Endpoints: e.Etcd}).InDynamod() {
		return &failure{action: action, err: fmt.Errorf("etcd at %s does not run inside a dynamod: it has credentials of its own", strings.Join(e.Etcd, ", "))}
	}
	ca, err := secret.Authority()
	if err != nil {
		return &failure{action: action, err: err}
	}
	until := inv.env.Now().UTC().Truncate(time.Second).AddDate(0, 0, o.days)
	pair, err := ca.Client("dynctl-export", until)
	if err != nil {
		return &failure{action: action, err: err}
	}
	dir := inv.path(o.export)
	x := exported{CA: filepath.Join(dir, "ca.pem"), Cert: filepath.Join(dir, "client.pem"), Key: filepath.Join(dir, "client-key.pem"), Until: until}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return &failure{action: action, err: err}
	}
	for _, f := range []struct {
		path string
		body []byte
	}{{x.CA, ca.PEM()}, {x.Key, pair.Key}, {x.Cert, pair.Cert}} {
		if err := ownerfile.Replace(f.path, f.body); err != nil {
			return &failure{action: action, err: err}
		}
	}
	var etcd []string
	for _, addr := range e.Etcd {
		etcd = append(etcd, "https://"+bare(addr))
	}
	x.Env = []string{
		"ETCDCTL_API=3", "ETCDCTL_ENDPOINTS=" + strings.Join(etcd, ","),
		"ETCDCTL_CACERT=" + x.CA, "ETCDCTL_CERT=" + x.Cert, "ETCDCTL_KEY=" + x.Key,
	}
	var text strings.Builder
	if (config.NATSClient{URL: e.NATS}).InDynamod() {
		x.Env = append(x.Env, "NATS_URL=tls://"+bare(e.NATS), "NATS_CA="+x.CA, "NATS_CERT="+x.Cert, "NATS_KEY="+x.Key)
	}
	for _, v := range x.Env {
		name, value, _ := strings.Cut(v, "=")
		fmt.Fprintf(&text, "export %s=%s\n", name, shellQuote(value))
	}
	if inv.prose() {
		inv.note("the certificate in %s ends on %s; whoever has its key may change everything in etcd and NATS", dir, until.Format(time.DateOnly))
		inv.note("etcdctl needs no flags; nats needs --tlsfirst")
	}
	return inv.answer(answer{data: x, names: []string{x.CA, x.Cert, x.Key}, text: text.String()})
}

// renew makes another secret.
func (o *credentialsCommand) renew(ctx context.Context, inv *invocation) error {
	const action = "cannot make a new secret"
	local, err := inv.local()
	if err != nil {
		return err
	}
	path, err := inv.secretPath()
	if err != nil {
		return err
	}
	old, err := client.Secret(inv.cfg)
	if err != nil {
		return &failure{action: action, err: err, tries: []string{"dynctl up"}}
	}
	if inv.external() && (config.EtcdClient{Endpoints: inv.cfg.Etcd.Endpoints}).InDynamod() {
		return &failure{action: action, err: errors.New("the etcd of this cluster is on another machine: make the new secret there")}
	}
	lock, err := local.LockStart(ctx)
	if err != nil {
		return &failure{action: action, err: err}
	}
	defer func() {
		if err := lock.Release(); err != nil {
			inv.warn("start lock not released: %v", err)
		}
	}()
	running, err := launch.List(local)
	if err != nil {
		return &failure{action: action, err: err}
	}
	if len(running) > 0 {
		return &failure{
			action: action, err: fmt.Errorf("%s runs on this machine, as process %d", running[0].Node.Name, running[0].PID),
			facts: []string{"all programs of a cluster change at once: stop those on other machines, too"}, tries: []string{"dynctl down"},
		}
	}
	made := credentials.New()
	if err := credentials.Replace(path, made); err != nil {
		return &failure{action: action, err: err}
	}
	if inv.prose() {
		inv.tell("%s has a new secret, %s in place of %s", inv.cfg.Cluster, made.Fingerprint(), old.Fingerprint())
		inv.note("certificates and tokens made with the old one are worth nothing from the next start on")
		inv.note("other machines join again with a new token; there, first remove the old secret that dynctl credentials names")
	}
	return inv.answer(answer{data: struct {
		Cluster     string `json:"cluster"`
		Fingerprint string `json:"fingerprint"`
		Was         string `json:"was"`
	}{inv.cfg.Cluster, made.Fingerprint(), old.Fingerprint()}, names: []string{made.Fingerprint()}})
}
