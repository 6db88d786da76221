package credentials

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"time"
)

// ServerName is a name in all server certificates of a cluster. The cluster's programs
// verify this name instead of the host, so that a server may be reached under any
// address. What counts is that the server has the cluster's secret.
const ServerName = "dynamod"

// AuthorityName is the prefix of the name of every cluster's authority. The fingerprint
// of its secret follows.
const AuthorityName = "dynctl cluster "

// Certificates that programs make for themselves are valid as long as the secret is.
// Programs with the secret can make new ones at any time, so that an expiry would not
// keep any of them out.
var (
	validFrom  = time.Date(2000, time.January, 1, 0, 0, 0, 0, time.UTC)
	validUntil = time.Date(9999, time.December, 31, 23, 59, 59, 0, time.UTC) // "no end", RFC 5280 4.1.2.5
)

// Authority is the certificate authority of a cluster. Its key is derived from the
// secret, so that every program makes the same authority and no certificate has to be
// distributed.
type Authority struct {
	cert *x509.Certificate
	key  ed25519.PrivateKey
}

// Pair is a certificate with its private key, as PEM.
type Pair struct{ Cert, Key []byte }

// Authority returns the certificate authority of the secret. The certificate has the same
// bytes in every program with that secret.
func (s Secret) Authority() (*Authority, error) {
	if s.IsZero() {
		return nil, errors.New("no cluster secret to make certificates with")
	}
	key := ed25519.NewKeyFromSeed(s.Key("ca"))
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: AuthorityName + s.Fingerprint()},
		NotBefore: validFrom, NotAfter: validUntil,
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign,
		// Set explicitly, because the value that Go computes differs between its
		// versions.
		SubjectKeyId: s.Key("ca id")[:20],
	}
	der, err := x509.CreateCertificate(nil, template, template, key.Public(), key) // Ed25519 uses no randomness
	if err != nil {
		return nil, fmt.Errorf("make the cluster's certificate authority: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("make the cluster's certificate authority: %w", err)
	}
	return &Authority{cert: cert, key: key}, nil
}

// PEM returns the certificate of the authority.
func (a *Authority) PEM() []byte { return pemBlock("CERTIFICATE", a.cert.Raw) }

// Fingerprint returns the SHA-256 of the certificate in 64 hex digits, as openssl prints
// it but without colons.
func (a *Authority) Fingerprint() string {
	sum := sha256.Sum256(a.cert.Raw)
	return hex.EncodeToString(sum[:])
}

// Server makes a certificate for a server that is reached at hosts (names or addresses)
// and under ServerName. It is not valid for clients.
func (a *Authority) Server(hosts ...string) (Pair, error) {
	t := &x509.Certificate{
		Subject: pkix.Name{CommonName: ServerName}, DNSNames: []string{ServerName}, NotAfter: validUntil,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		} else {
			t.DNSNames = append(t.DNSNames, h)
		}
	}
	return a.leaf(t)
}

// Client makes a certificate for a client, with user in the common name. It is not valid
// for servers. A zero until means no expiry.
func (a *Authority) Client(user string, until time.Time) (Pair, error) {
	if until.IsZero() {
		until = validUntil
	}
	// Without host names: etcd would compare them with the client's address.
	return a.leaf(&x509.Certificate{
		Subject: pkix.Name{CommonName: user}, NotAfter: until,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

func (a *Authority) leaf(t *x509.Certificate) (Pair, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("make a certificate: %w", err)
	}
	var serial [16]byte
	_, _ = rand.Read(serial[:]) // never fails
	serial[0] &= 0x7f           // positive
	t.SerialNumber = new(big.Int).SetBytes(serial[:])
	t.NotBefore, t.KeyUsage, t.BasicConstraintsValid = validFrom, x509.KeyUsageDigitalSignature, true
	der, err := x509.CreateCertificate(rand.Reader, t, a.cert, public, a.key)
	if err != nil {
		return Pair{}, fmt.Errorf("make a certificate: %w", err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return Pair{}, fmt.Errorf("make a certificate: %w", err)
	}
	return Pair{Cert: pemBlock("CERTIFICATE", der), Key: pemBlock("PRIVATE KEY", pkcs8)}, nil
}

// ClientTLS returns the TLS settings of a client. The client proves that it has the
// secret, with user in the common name, and accepts only servers that have it, too.
func (s Secret) ClientTLS(user string) (*tls.Config, error) {
	a, err := s.Authority()
	if err != nil {
		return nil, err
	}
	pair, err := a.Client(user, time.Time{})
	if err != nil {
		return nil, err
	}
	cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		return nil, fmt.Errorf("use a certificate: %w", err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert}, ServerName: ServerName,
		// Libraries replace ServerName with the host that they dial. Instead, verify
		// checks everything that a server must prove.
		InsecureSkipVerify: true,
		VerifyConnection:   func(s tls.ConnectionState) error { return verify(s, pool) },
	}, nil
}

// verify checks the certificate of a server as crypto/tls would for ServerName.
func verify(s tls.ConnectionState, authority *x509.CertPool) error {
	if len(s.PeerCertificates) == 0 {
		return errors.New("the server has no certificate")
	}
	_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{
		Roots: authority, DNSName: ServerName, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	if err != nil {
		return &tls.CertificateVerificationError{UnverifiedCertificates: s.PeerCertificates, Err: err}
	}
	return nil
}

func pemBlock(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
