package embedded

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/dynctl/dynctl/internal/credentials"
	"github.com/dynctl/dynctl/internal/ownerfile"
)

// Credentials hold a server's certificate and key, and the certificate authority of its
// clients, as PEM. A server with credentials speaks only TLS, from the first byte, and
// only with clients whose certificate that authority signed.
type Credentials struct {
	CA   []byte // certificate authority of servers and clients
	Cert []byte // the server's certificate, for every address at which clients reach it
	Key  []byte // of Cert
}

// NewCredentials makes the credentials of a server of the cluster with that secret. hosts
// are the names or addresses at which clients reach it; clients that verify host names
// compare them with the certificate.
func NewCredentials(s credentials.Secret, hosts ...string) (*Credentials, error) {
	ca, err := s.Authority()
	if err != nil {
		return nil, err
	}
	pair, err := ca.Server(hosts...)
	if err != nil {
		return nil, err
	}
	return &Credentials{CA: ca.PEM(), Cert: pair.Cert, Key: pair.Key}, nil
}

// tls returns the TLS settings of a server.
func (c *Credentials) tls() (*tls.Config, error) {
	cert, err := tls.X509KeyPair(c.Cert, c.Key)
	if err != nil {
		return nil, fmt.Errorf("server certificate: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(c.CA) {
		return nil, errors.New("server certificate: no authority")
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool,
	}, nil
}

// keep writes the credentials to files that only their owner can read. etcd needs files,
// because it reads them again at each handshake. Files with the same content are not
// rewritten, so that a server can restart on a full disk.
func (c *Credentials) keep(dir string) (ca, cert, key string, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", "", "", fmt.Errorf("%w: %w", ErrDir, err)
	}
	ca, cert, key = filepath.Join(dir, "ca.pem"), filepath.Join(dir, "server.pem"), filepath.Join(dir, "server-key.pem")
	for path, body := range map[string][]byte{ca: c.CA, cert: c.Cert, key: c.Key} {
		if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, body) {
			continue
		}
		if err := ownerfile.Replace(path, body); err != nil {
			return "", "", "", fmt.Errorf("%w: %w", ErrDir, err)
		}
	}
	return ca, cert, key, nil
}
