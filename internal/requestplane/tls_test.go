package requestplane_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/handshake"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/requestplane"
)

// selfSigned returns a certificate for 127.0.0.1 and the pool that trusts it.
func selfSigned(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(time.Hour),
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

func ephemeral(t *testing.T) *tls.Config {
	t.Helper()
	c, err := handshake.Ephemeral()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestTCPWithTLS(t *testing.T) {
	checkLeaks(t)
	cert, pool := selfSigned(t)
	var log patience.Buffer
	secure := listen(t, requestplane.ServerConfig{
		Log:              slog.New(slog.NewTextHandler(&log, nil)),
		TLS:              &tls.Config{Certificates: []tls.Certificate{cert}},
		HandshakeTimeout: 300 * time.Millisecond,
	})
	plain := listen(t, requestplane.ServerConfig{HandshakeTimeout: 300 * time.Millisecond})
	for _, s := range []requestplane.Server{secure, plain} {
		handle(t, s, "1/echo", echo)
	}
	trusting := &tls.Config{RootCAs: pool}
	tests := []struct {
		name   string
		server requestplane.Server
		tls    *tls.Config
		ok     bool
	}{
		{"both", secure, trusting, true},
		{"client that does not ask for it", secure, nil, true},
		{"nobody is verified but by the secret", secure, ephemeral(t), true},
		{"unknown authority", secure, &tls.Config{RootCAs: x509.NewCertPool()}, false},
		{"another name", secure, &tls.Config{RootCAs: pool, ServerName: "example.com"}, false},
		{"plain server", plain, trusting, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := newClient(t, requestplane.ClientConfig{TLS: test.tls, ConnectTimeout: 2 * time.Second})
			err := ask(t.Context(), c, test.server.Addr()+"/1/echo", strings.Repeat("x", 100_000))
			if test.ok && err != nil || !test.ok && !errors.Is(err, requestplane.ErrCannotConnect) {
				t.Errorf("call = %v", err)
			}
			if test.ok && log.String() != "" {
				t.Errorf("the server warns of a client that is welcome: %s", log.String())
			}
		})
	}
}
