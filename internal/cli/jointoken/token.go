package jointoken

import (
	"fmt"
	"net"
	"strings"

	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/cli/session"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/credentials"
	"github.com/dynctl/dynctl/internal/statedir"
)

// New makes a token with which other machines reach the cluster.
func New(sess *session.Session, e statedir.Endpoints, secret credentials.Secret) (string, error) {
	t := credentials.Token{Cluster: sess.Config.Cluster, Namespace: e.Namespace, NATS: At(e.NATS, e.Host), Secret: secret}
	for _, addr := range e.Etcd {
		t.Etcd = append(t.Etcd, At(addr, e.Host))
	}
	for _, addr := range append([]string{t.NATS}, t.Etcd...) {
		if addr != "" && LocalOnly(addr) {
			return "", fmt.Errorf("%s can be reached from this machine only", human.Address(addr))
		}
	}
	return t.Encode()
}

// At puts another host into the address of a server inside a dynamod.
func At(addr, host string) string {
	rest, ok := strings.CutPrefix(addr, config.SchemeDynamod)
	_, port, err := net.SplitHostPort(rest)
	if !ok || host == "" || err != nil {
		return addr
	}
	return config.SchemeDynamod + net.JoinHostPort(host, port)
}

// LocalOnly reports whether an address can be reached from this machine only.
func LocalOnly(addr string) bool {
	host, _, err := net.SplitHostPort(human.Address(addr))
	ip := net.ParseIP(host)
	return err == nil && (host == "localhost" || ip != nil && ip.IsLoopback())
}

// Line returns the command that starts a node on another machine. It passes the token in a
// variable: every user of a machine can read the arguments of a process.
func Line(s *session.Session, e statedir.Endpoints) (string, error) {
	secret, err := client.Secret(s.Config)
	if err != nil {
		return "", err
	}
	token, err := New(s, e, secret)
	if err != nil {
		return "", err
	}
	return "DYNAMOD_JOIN=" + token + " dynamod --node-name NAME --node-advertise-host ADDRESS", nil
}
