package credentials

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"testing"
	"time"
)

func authority(t *testing.T, s Secret) *Authority {
	t.Helper()
	a, err := s.Authority()
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// All who have the secret have the same authority, whatever version of Go made it.
func TestAuthorityFollowsFromTheSecret(t *testing.T) {
	s := New()
	first := authority(t, s).PEM()
	if !bytes.Equal(first, authority(t, s).PEM()) {
		t.Error("two programs with one secret have different authorities")
	}
	if bytes.Equal(first, authority(t, New()).PEM()) {
		t.Error("two secrets have one authority")
	}
	known, err := Decode("000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f")
	if err != nil {
		t.Fatal(err)
	}
	const want = "96446b587095120b05129e67e285c88d7fe3f4706020d3ae23092725b197e6be"
	if got := authority(t, known).Fingerprint(); got != want {
		t.Errorf("a cluster that is updated has another authority: %s", got)
	}
	if _, err := (Secret{}).Authority(); err == nil {
		t.Error("no secret has an authority")
	}
}

// handshake joins two ends and exchanges a byte in each direction: with TLS 1.3 a client
// learns only then that it was refused.
func handshake(client, server *tls.Config) error {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer ln.Close()
	served := make(chan error, 1)
	go func() {
		c, err := ln.Accept()
		if err != nil {
			served <- err
			return
		}
		defer c.Close()
		t := tls.Server(c, server)
		_, err = t.Write([]byte{1})
		if err == nil {
			_, err = t.Read(make([]byte, 1))
		}
		served <- err
	}()
	d := tls.Dialer{NetDialer: &net.Dialer{Timeout: 10 * time.Second}, Config: client}
	c, err := d.Dial("tcp", ln.Addr().String())
	if err == nil {
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		if _, err = c.Read(make([]byte, 1)); err == nil {
			_, err = c.Write([]byte{1})
		}
	}
	return errors.Join(err, <-served)
}

func TestCertificates(t *testing.T) {
	s, other := New(), New()
	a := authority(t, s)
	pair := func(p Pair, err error) tls.Certificate {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		c, err := tls.X509KeyPair(p.Cert, p.Key)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	clientOf := func(s Secret) *tls.Config {
		t.Helper()
		c, err := s.ClientTLS("dynctl")
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	server := func(cert tls.Certificate) *tls.Config {
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(a.PEM())
		return &tls.Config{Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool}
	}
	good := pair(a.Server("10.0.0.5", "gpu-7"))
	for name, tc := range map[string]struct {
		client *tls.Config
		server tls.Certificate
		ok     bool
	}{
		"same secret":        {clientOf(s), good, true},
		"client of another":  {clientOf(other), good, false},
		"server of another":  {clientOf(s), pair(authority(t, other).Server()), false},
		"a client as server": {clientOf(s), pair(a.Client("dynctl", time.Time{})), false},
		"no certificate":     {&tls.Config{InsecureSkipVerify: true}, good, false},
		"a server as client": {&tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{good}}, good, false},
		"an expired one":     {&tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{pair(a.Client("x", time.Now().Add(-time.Hour)))}}, good, false},
		"one that will":      {&tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{pair(a.Client("x", time.Now().Add(time.Hour)))}}, good, true},
	} {
		if err := handshake(tc.client, server(tc.server)); (err == nil) != tc.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Programs of the cluster do not care for the host, even if a library asks for it.
	c := clientOf(s)
	c.ServerName = "198.51.100.7"
	if err := handshake(c, server(good)); err != nil {
		t.Errorf("behind another address: %v", err)
	}
	// Tools that know nothing of ServerName compare the host.
	for host, ok := range map[string]bool{"10.0.0.5": true, "gpu-7": true, ServerName: true, "10.0.0.6": false} {
		c := clientOf(s)
		c.ServerName, c.InsecureSkipVerify, c.VerifyConnection, c.RootCAs = host, false, nil, x509.NewCertPool()
		c.RootCAs.AppendCertsFromPEM(a.PEM())
		if err := handshake(c, server(good)); (err == nil) != ok {
			t.Errorf("at %s: %v", host, err)
		}
	}
}
