package dialtest

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/dial"
)

// Etcd is an etcd server in a process of its own.
type Etcd struct {
	process
	access Access
}

// StartEtcd starts one in an empty directory, until the test ends.
func StartEtcd(t testing.TB, a Access) *Etcd {
	t.Helper()
	path := program(t, "DYNCTL_ETCD", "etcd", "etcd-server")
	e := &Etcd{process{t: t, path: path, addr: freeAddr(t)}, a}
	peer := "http://" + freeAddr(t)
	url := e.scheme() + e.addr
	e.args = []string{
		"--name=d", "--data-dir=" + filepath.Join(t.TempDir(), "data"), "--listen-client-urls=" + url, "--advertise-client-urls=" + url,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=d=" + peer,
		"--heartbeat-interval=20", "--election-timeout=200", "--bcrypt-cost=4", "--logger=zap", "--log-level=error",
	}
	if a.Folder != nil {
		e.args = append(e.args, "--cert-file="+a.file("server.pem"), "--key-file="+a.file("server-key.pem"))
	}
	if a.Mutual {
		e.args = append(e.args, "--client-cert-auth", "--trusted-ca-file="+a.file("ca.pem"))
	}
	e.start()
	t.Cleanup(e.Kill)
	if a.User != "" {
		e.ask()
	}
	return e
}

func (e *Etcd) scheme() string {
	if e.access.Folder != nil {
		return "https://"
	}
	return "http://"
}

// Client returns the settings of a client that is let in.
func (e *Etcd) Client() config.EtcdClient {
	c := config.EtcdClient{Endpoints: []string{e.scheme() + e.addr}, Username: e.access.User, Password: config.Secret(e.access.Password)}
	c.CAFile, c.CertFile, c.KeyFile = e.access.files()
	return c
}

// ask makes etcd ask for the user.
func (e *Etcd) ask() {
	e.t.Helper()
	c := e.Client()
	c.Username, c.Password = "", ""
	s, err := dial.Etcd(c, nil, dial.Identity{}, slog.New(slog.DiscardHandler))
	if err != nil {
		e.t.Fatal(err)
	}
	defer s.Close()
	ctx, cancel := context.WithTimeout(e.t.Context(), patience)
	defer cancel()
	user, password := e.access.User, e.access.Password
	for _, step := range []func() error{
		func() error { _, err := s.Client().UserAdd(ctx, user, password); return err },
		func() error { _, err := s.Client().RoleAdd(ctx, "root"); return err },
		func() error { _, err := s.Client().UserGrantRole(ctx, user, "root"); return err },
		func() error { _, err := s.Client().AuthEnable(ctx); return err },
	} {
		if err := step(); err != nil {
			e.t.Fatal(err)
		}
	}
}
