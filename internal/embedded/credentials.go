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

// Credentials are what a server proves itself with and whom it lets in, as PEM. A server
// that has them speaks TLS only, from the first byte, and only with clients whose
// certificate is of the authority.
type Credentials struct {
	CA   []byte // authority of all certificates
	Cert []byte // of the server, for every address at which clients reach it
	Key  []byte // of Cert
}

// NewCredentials makes those of a server of the cluster that has the secret. It is reached
// at hosts, names or addresses, by tools that compare them.
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

// tls returns the settings of a server.
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

// keep writes the credentials into files for the owner only, as etcd wants them: it reads
// them again at each handshake. What is there already is not written, so that a server
// starts again on a full disk.
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
