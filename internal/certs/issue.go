package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"
)

// pair is a certificate with its key, as PEM.
type pair struct{ cert, key []byte }

// skew is how much earlier than now certificates begin, for clocks that are behind.
const skew = time.Hour

// newAuthority makes a certificate authority.
func newAuthority(now time.Time, days int) (pair, error) {
	serial := newSerial()
	t := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "dynctl certs " + hex.EncodeToString(serial.Bytes()[:4])},
		NotBefore: now.Add(-skew), NotAfter: now.AddDate(0, 0, days),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	return sign(t, t, nil)
}

// newLeaf makes a certificate of an authority, which is not valid longer than that is.
func newLeaf(ca tls.Certificate, r Request, now time.Time) (pair, error) {
	parent, err := x509.ParseCertificate(ca.Certificate[0])
	if err != nil {
		return pair{}, err
	}
	if !parent.IsCA || !now.Before(parent.NotAfter) {
		return pair{}, fmt.Errorf("the authority ended at %s, or is none", parent.NotAfter.Format(time.RFC3339))
	}
	t := &x509.Certificate{
		SerialNumber: newSerial(), Subject: pkix.Name{CommonName: r.Name},
		NotBefore: now.Add(-skew), NotAfter: now.AddDate(0, 0, r.Days),
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if t.NotAfter.After(parent.NotAfter) {
		t.NotAfter = parent.NotAfter
	}
	if !r.Client { // etcd's gateway also uses it as a client, and so do peers of NIXL
		t.ExtKeyUsage = append(t.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	for _, h := range r.Hosts {
		if ip := net.ParseIP(h); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		} else {
			t.DNSNames = append(t.DNSNames, h)
		}
	}
	return sign(t, parent, ca.PrivateKey)
}

// sign makes a key and its certificate, which signs itself if by is nil.
func sign(t, parent *x509.Certificate, by any) (pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, err
	}
	if by == nil {
		by = key
	}
	der, err := x509.CreateCertificate(rand.Reader, t, parent, key.Public(), by)
	if err != nil {
		return pair{}, err
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return pair{}, err
	}
	block := func(kind string, der []byte) []byte {
		return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	}
	return pair{cert: block("CERTIFICATE", der), key: block("PRIVATE KEY", pkcs8)}, nil
}

func newSerial() *big.Int {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[0] = b[0]&0x7f | 1   // positive, and not shorter
	return new(big.Int).SetBytes(b[:])
}
