package dialtest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"

	"github.com/dynctl/dynctl/internal/config"
)

// NATS is a NATS server with JetStream in a process of its own.
type NATS struct {
	process
	access Access
	creds  string // a credentials file
}

// StartNATS starts one with empty streams, until the test ends.
func StartNATS(t testing.TB, a Access) *NATS {
	t.Helper()
	path := program(t, "DYNCTL_NATS_SERVER", "nats-server", "nats-server")
	dir := t.TempDir()
	n := &NATS{process: process{t: t, path: path, addr: freeAddr(t)}, access: a}
	var conf strings.Builder
	fmt.Fprintf(&conf, "listen: %q\njetstream { store_dir: %q }\n", n.addr, dir)
	if a.Folder != nil {
		fmt.Fprintf(&conf, "tls { cert_file: %q, key_file: %q, ca_file: %q, verify: %t }\n", a.file("server.pem"), a.file("server-key.pem"), a.file("ca.pem"), a.Mutual)
	}
	switch {
	case a.User != "":
		fmt.Fprintf(&conf, "authorization { user: %q, password: %q }\n", a.User, a.Password)
	case a.Token != "":
		fmt.Fprintf(&conf, "authorization { token: %q }\n", a.Token)
	case a.NKey != "":
		fmt.Fprintf(&conf, "authorization { users: [ { nkey: %q } ] }\n", public(t, a.NKey))
	case a.Creds:
		n.creds = filepath.Join(dir, "user.creds")
		conf.WriteString(operator(t, n.creds))
	}
	file := filepath.Join(dir, "nats.conf")
	if err := os.WriteFile(file, []byte(conf.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	n.args = []string{"-c", file}
	n.start()
	t.Cleanup(n.Kill)
	return n
}

// Client returns the settings of a client that is let in.
func (n *NATS) Client() config.NATSClient {
	a := n.access
	c := config.NATSClient{
		URL: "nats://" + n.addr, Username: a.User, Password: config.Secret(a.Password), Token: config.Secret(a.Token), NKey: config.Secret(a.NKey), CredsFile: n.creds,
	}
	if a.Folder != nil {
		c.URL = "tls://" + n.addr
	}
	c.CAFile, c.CertFile, c.KeyFile = a.files()
	return c
}

// NKey makes the seed of a user.
func NKey(t testing.TB) string {
	t.Helper()
	_, seed := keys(t, nkeys.CreateUser)
	return seed
}

func keys(t testing.TB, create func() (nkeys.KeyPair, error)) (pair nkeys.KeyPair, seed string) {
	t.Helper()
	pair, err := create()
	if err != nil {
		t.Fatal(err)
	}
	b, err := pair.Seed()
	if err != nil {
		t.Fatal(err)
	}
	return pair, string(b)
}

// public is the public key of a seed.
func public(t testing.TB, seed string) string {
	t.Helper()
	pair, err := nkeys.FromSeed([]byte(seed))
	if err != nil {
		t.Fatal(err)
	}
	key, err := pair.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// operator is the configuration of a server whose users have tokens (JWT) that an account of
// an operator has signed. It writes the credentials of one user.
func operator(t testing.TB, creds string) string {
	t.Helper()
	op, opSeed := keys(t, nkeys.CreateOperator)
	account, accountSeed := keys(t, nkeys.CreateAccount)
	_, systemSeed := keys(t, nkeys.CreateAccount)
	_, userSeed := keys(t, nkeys.CreateUser)
	encoded := func(text string, err error) string {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	operatorClaims := jwt.NewOperatorClaims(public(t, opSeed))
	operatorClaims.SystemAccount = public(t, systemSeed)
	claims := jwt.NewAccountClaims(public(t, accountSeed))
	claims.Limits.JetStreamLimits = jwt.JetStreamLimits{MemoryStorage: -1, DiskStorage: -1, Streams: -1, Consumer: -1}
	system := jwt.NewAccountClaims(public(t, systemSeed))
	user := encoded(jwt.NewUserClaims(public(t, userSeed)).Encode(account))
	text, err := jwt.FormatUserConfig(user, []byte(userSeed))
	if err == nil {
		err = os.WriteFile(creds, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("operator: %s\nsystem_account: %s\nresolver: MEMORY\nresolver_preload: { %s: %s, %s: %s }\n",
		encoded(operatorClaims.Encode(op)), operatorClaims.SystemAccount,
		claims.Subject, encoded(claims.Encode(op)), system.Subject, encoded(system.Encode(op)))
}
