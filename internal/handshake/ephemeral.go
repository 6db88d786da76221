package handshake

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math/big"
	"time"
)

// Ephemeral returns TLS settings, as a client and as a server, with a certificate that
// identifies no one and that is not verified. The handshake of this package proves the
// identity and is bound to the TLS session. The settings must not be used without it.
func Ephemeral() (*tls.Config, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key for TLS: %w", err)
	}
	now := time.Now()
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: now.Add(-24 * time.Hour), NotAfter: now.AddDate(100, 0, 0)}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, public, private)
	if err != nil {
		return nil, fmt.Errorf("make a certificate for TLS: %w", err)
	}
	return &tls.Config{
		MinVersion:         tls.VersionTLS13,
		Certificates:       []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: private}},
		InsecureSkipVerify: true, // #nosec G402 -- the channel binding takes its place
	}, nil
}
