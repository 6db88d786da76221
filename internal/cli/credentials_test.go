package cli

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/cli/clitest"
	credentialscmd "github.com/dynctl/dynctl/internal/cli/credentials"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/credentials"
	"github.com/dynctl/dynctl/internal/statedir"
)

// keeper is a machine with a state directory and nothing that runs.
func keeper(t *testing.T) (env []string, c statedir.Cluster) {
	t.Helper()
	state := t.TempDir()
	c, err := statedir.Open(state, "local")
	if err != nil {
		t.Fatal(err)
	}
	return []string{"HOME=" + state, "DYNCTL_STATE_DIR=" + state}, c
}

// A token can name NATS, or files, in place of etcd.
func TestJoinWithoutEtcd(t *testing.T) {
	for store, want := range map[string]string{"bucket://dynctl": "joined local at 10.0.0.5:4222\n", "file:///shared/store": "joined local at /shared/store\n"} {
		env, c := keeper(t)
		tok := credentials.Token{Namespace: "team", Etcd: []string{store}, NATS: "dynamod://10.0.0.5:4222", Secret: credentials.New()}
		text, err := tok.Encode()
		if err != nil {
			t.Fatal(err)
		}
		r := runMain(t.Context(), options{env: env, input: text + "\n"}, "join", "-")
		if r.code != 0 || !strings.Contains(r.stderr, want) {
			t.Errorf("%s: %+v", store, r)
		}
		if j, err := c.Joined(); err != nil || j.Etcd[0] != store || j.NATS != tok.NATS {
			t.Errorf("%s: %+v, %v", store, j, err)
		}
		if r := runMain(t.Context(), options{env: env}, "up", "--agents", "2"); r.code != exit.Usage || !strings.Contains(r.stderr, "after dynctl join") {
			t.Errorf("%s: up on a machine that has joined: %+v", store, r)
		}
	}
}

// A machine that joins keeps what the token says, and reaches the cluster from then on.
func TestJoinAndCredentials(t *testing.T) {
	endpoint, url, ns := startServers(t)
	env, c := keeper(t)
	run := func(o options, args ...string) result {
		t.Helper()
		o.env = env
		return runMain(t.Context(), o, args...)
	}
	if r := run(options{}, "credentials"); r.code != exit.Failed {
		t.Errorf("no secret: %+v", r)
	} else {
		clitest.Has(t, "the error", r.stderr, "there is no file "+c.SecretPath(), "dynctl join TOKEN")
	}
	tok := credentials.Token{Namespace: ns, Etcd: []string{endpoint}, NATS: url, Secret: credentials.New()}
	text, err := tok.Encode()
	if err != nil {
		t.Fatal(err)
	}
	r := run(options{input: text + "\n"}, "join", "-")
	if r.code != 0 || r.stdout != "" {
		t.Fatalf("join: %+v", r)
	}
	clitest.Has(t, "join", r.stderr, "joined local at "+endpoint, "try: dynctl ps\n", "try: dynamod --node-name NAME")
	if got, err := credentials.Load(c.SecretPath()); err != nil || got != tok.Secret {
		t.Errorf("the secret: %v %v", got, err)
	}
	// Other programs call endpoints with a token, which is not the secret.
	r = run(options{}, "credentials", "--token")
	if r.code != 0 || r.stdout != client.HTTPToken(tok.Secret)+"\n" || strings.Contains(r.stdout, tok.Secret.Encode()) {
		t.Errorf("credentials --token: %+v", r)
	}
	if r := run(options{}, "credentials", "--token", "--join"); r.code != exit.Usage {
		t.Errorf("two things at once: %+v", r)
	}
	// It is reached without any setting, in its namespace, and up starts nothing here.
	if r := run(options{}, "get", "workers"); r.code != 0 {
		t.Errorf("get workers: %+v", r)
	}
	if r := run(options{}, "up", "--agents", "2"); r.code != exit.Usage || !strings.Contains(r.stderr, "after dynctl join") {
		t.Errorf("up on a machine that has joined: %+v", r)
	}
	r = run(options{}, "credentials", "-o", "json")
	var v credentialscmd.View
	if err := json.Unmarshal([]byte(r.stdout), &v); err != nil || v.Fingerprint != tok.Secret.Fingerprint() || v.SecretFile != c.SecretPath() || v.Etcd[0] != endpoint || v.NATS != url || len(v.Authority) != 64 {
		t.Errorf("credentials: %+v %v", v, err)
	}
	if strings.Contains(r.stdout+r.stderr, tok.Secret.Encode()[:12]) {
		t.Error("credentials shows the secret")
	}
	// Addresses on loopback help no other machine, and such stores have their own certificates.
	if r := run(options{}, "credentials", "--join"); r.code != exit.Failed || r.stdout != "" || !strings.Contains(r.stderr, "from this machine only") || !strings.Contains(r.stderr, "--advertise-host") {
		t.Errorf("credentials --join: %+v", r)
	}
	if r := run(options{}, "credentials", "--export", t.TempDir()); r.code != exit.Failed || !strings.Contains(r.stderr, "does not run inside a dynamod") {
		t.Errorf("credentials --export: %+v", r)
	}
	// Joining again is no mistake, another cluster is.
	if r := run(options{}, "join", text, "-q"); r.code != 0 || r.stdout != "local\n" {
		t.Errorf("again: %+v", r)
	}
	tok.Secret = credentials.New()
	other, err := tok.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if r := run(options{}, "join", other); r.code != exit.Failed || !strings.Contains(r.stderr, "the secret of another cluster") {
		t.Errorf("another cluster: %+v", r)
	}
	if r := run(options{}, "join", other, "--cluster", "two"); r.code != 0 || !strings.Contains(r.stderr, "dynctl ps --cluster two") {
		t.Errorf("under another name: %+v", r)
	}
	for _, args := range [][]string{{"join"}, {"join", "dynctl1:x"}, {"join", "missing"}, {"join", "dynctl7:x"}, {"credentials", "--join", "--rotate"}, {"credentials", "--days", "0"}} {
		if r := run(options{}, args...); r.code != exit.Usage {
			t.Errorf("%v: %+v", args, r)
		}
	}
	tok.Etcd = []string{"nonsense"}
	if bad, err := tok.Encode(); err != nil {
		t.Error(err)
	} else if r := run(options{}, "join", bad, "--cluster", "three"); r.code == 0 {
		t.Errorf("addresses that are none: %+v", r)
	}
}

// Where other machines reach the cluster a token says so; certificates for tools are for
// their owner only; a new secret is made when nothing runs.
func TestCredentialsOfALocalCluster(t *testing.T) {
	env, c := keeper(t)
	run := func(args ...string) result {
		t.Helper()
		return runMain(t.Context(), options{env: env}, args...)
	}
	n, err := c.Node("node-1")
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Create(); err != nil {
		t.Fatal(err)
	}
	lock, err := n.Lock()
	if err != nil {
		t.Fatal(err)
	}
	secret, err := credentials.Create(c.SecretPath(), credentials.New())
	if err != nil {
		t.Fatal(err)
	}
	e := statedir.Endpoints{Namespace: "team", Etcd: []string{"dynamod://127.0.0.1:2379"}, NATS: "dynamod://127.0.0.1:4222", Node: "node-1", PID: os.Getpid(), Host: "10.0.0.5"}
	if err := c.WriteEndpoints(e); err != nil {
		t.Fatal(err)
	}
	r := run("credentials", "--join")
	tok, err := credentials.ParseToken(r.stdout)
	if err != nil || tok.Secret != secret || tok.Namespace != "team" || tok.Etcd[0] != "dynamod://10.0.0.5:2379" || tok.NATS != "dynamod://10.0.0.5:4222" {
		t.Errorf("token %+v %v", tok, err)
	}
	clitest.Has(t, "credentials --join", r.stderr, "anyone with this token can join the cluster", "DYNAMOD_JOIN=TOKEN dynamod")
	dir := filepath.Join(t.TempDir(), "it's here")
	r = run("credentials", "--export", dir, "--days", "7")
	if r.code != 0 {
		t.Fatalf("%+v", r)
	}
	clitest.Has(t, "credentials --export", r.stdout, "export ETCDCTL_ENDPOINTS=https://127.0.0.1:2379\n", "export NATS_URL=tls://127.0.0.1:4222\n", `/it'\''s here/client-key.pem'`)
	for name, mode := range map[string]os.FileMode{"": 0o700, "ca.pem": 0o600, "client.pem": 0o600, "client-key.pem": 0o600} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v %v", name, info, err)
		}
	}
	if r := run("credentials", "--rotate"); r.code != exit.Failed || !strings.Contains(r.stderr, "node-1 runs on this machine") {
		t.Errorf("rotate while a node runs: %+v", r)
	}
	if err := errors.Join(lock.Release(), c.RemoveEndpoints()); err != nil {
		t.Fatal(err)
	}
	if r = run("credentials", "--rotate", "-q"); r.code != 0 {
		t.Fatalf("rotate: %+v", r)
	}
	now, err := credentials.Load(c.SecretPath())
	if err != nil || now == secret || r.stdout != now.Fingerprint()+"\n" {
		t.Errorf("after rotate: %v %v, said %q", now, err, r.stdout)
	}
	if r := run("credentials"); r.code != 0 || !strings.Contains(r.stdout, now.Fingerprint()) {
		t.Errorf("credentials of a cluster that does not run: %+v", r)
	}
}
