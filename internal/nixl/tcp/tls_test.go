package tcp

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"math/big"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/handshake"
	"github.com/dynctl/dynctl/internal/handshake/handshaketest"
	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/nixltest"
	"github.com/dynctl/dynctl/internal/proxytest"
)

// authority signs certificates for tests.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	last int64
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	a := &authority{}
	a.cert, a.key = a.sign(t, &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, nil)
	return a
}

// sign makes a certificate, of the authority itself if parent is nil.
func (a *authority) sign(t testing.TB, c *x509.Certificate, parent *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a.last++
	c.SerialNumber, c.Subject = big.NewInt(a.last), pkix.Name{CommonName: "test"}
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	signer := a.key
	if parent == nil {
		parent, signer = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	if c, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return c, key
}

func (a *authority) pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.cert)
	return p
}

// config is that of an agent with a certificate of this authority for some hosts.
func (a *authority) config(t testing.TB, ips []net.IP, names ...string) *tls.Config {
	t.Helper()
	c, key := a.sign(t, &x509.Certificate{IPAddresses: ips, DNSNames: names}, a.cert)
	return &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{c.Raw}, PrivateKey: key}},
		RootCAs:      a.pool(),
	}
}

// always are settings that do not change.
func always(c *tls.Config) func() *tls.Config { return func() *tls.Config { return c } }

var loopback = []net.IP{net.IPv4(127, 0, 0, 1)}

func TestBehaviorSecured(t *testing.T) {
	trusted := newAuthority(t).config(t, loopback)
	for name, o := range map[string]Options{
		"checksums":         {Checksums: true},
		"TLS":               {TLS: always(trusted)},
		"TLS and checksums": {TLS: always(trusted), Checksums: true},
	} {
		if testing.Short() && name != "TLS and checksums" {
			continue // the goroutines of one or the other
		}
		t.Run(name, func(t *testing.T) {
			nixltest.Run(t, func(testing.TB) nixltest.Env { return options(o) })
		})
	}
}

func options(o Options) nixltest.Env {
	return nixltest.Env{Name: Name, Transports: func() []nixl.Transport { return []nixl.Transport{New(o)} }}
}

// TestTrust lets nobody in who is not known, in either direction.
func TestTrust(t *testing.T) {
	known, unknown := newAuthority(t), newAuthority(t)
	client := known.config(t, loopback)
	without := client.Clone()
	without.Certificates = nil
	foreign := unknown.config(t, loopback)
	foreign.RootCAs = known.pool() // it trusts the target, which does not trust it
	renamed := known.config(t, loopback)
	renamed.ServerName = "nixl.example"
	for _, c := range []struct {
		name           string
		client, target *tls.Config
		want           nixl.Status
		says           string
	}{
		{"both known", client, known.config(t, loopback), nixl.Success, ""},
		{"a name that all peers share", renamed, known.config(t, nil, "nixl.example"), nixl.Success, ""},
		{"target of another authority", client, unknown.config(t, loopback), nixl.ErrRemoteDisconnect, "unknown authority"},
		{"target with another name", client, known.config(t, nil, "elsewhere.example"), nixl.ErrRemoteDisconnect, "doesn't contain any IP SANs"},
		{"initiator of another authority", foreign, known.config(t, loopback), nixl.ErrRemoteDisconnect, "unknown certificate authority"},
		{"initiator without a certificate", without, known.config(t, loopback), nixl.ErrRemoteDisconnect, "certificate required"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := options(Options{TLS: always(c.client)}).Agent(t, "a"), options(Options{TLS: always(c.target)}).Agent(t, "b")
			nixltest.Load(t, a, b)
			err := a.Notify(nixltest.Context(t), "b", []byte("hi"))
			nixltest.WantStatus(t, err, c.want)
			if err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("error %q does not say %q", err, c.says)
			}
			if err != nil && b.Stats().NotifyReceived+uint64(b.Stats().NotifyWaiting) > 0 {
				t.Error("a message got in")
			}
			if err == nil {
				nixltest.Next(t, b)
			}
		})
	}
}

// TestTLSOnOneSide is found out when the peer is loaded.
func TestTLSOnOneSide(t *testing.T) {
	secure := Options{TLS: always(newAuthority(t).config(t, loopback))}
	for name, c := range map[string]struct {
		a, b Options
		says string
	}{
		"the target":    {Options{}, secure, "peer requires TLS"},
		"the initiator": {secure, Options{}, "this agent requires TLS"},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := options(c.a).Agent(t, "a"), options(c.b).Agent(t, "b")
			if _, err := a.LoadRemote(b.Metadata()); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("LoadRemote() = %v, want %q", err, c.says)
			}
		})
	}
}

// TestCorruptedByte changes one byte on the way. With checksums, or TLS, the transfer
// fails and says why; without either it would pass for good.
func TestCorruptedByte(t *testing.T) {
	const size = 4 << 20
	for name, c := range map[string]struct {
		o       Options
		want    nixl.Status
		counted bool
	}{
		"checksums of the initiator": {Options{Checksums: true}, nixl.ErrMismatch, true},
		"TLS":                        {Options{TLS: always(newAuthority(t).config(t, loopback))}, nixl.ErrRemoteDisconnect, false},
		"neither":                    {Options{}, nixl.Success, false},
	} {
		for _, op := range []nixl.Op{nixl.Write, nixl.Read} {
			t.Run(name+"/"+op.String(), func(t *testing.T) {
				p := proxytest.New(t, "")
				o := c.o
				o.dial, o.Conns = through(p), 1
				target := c.o
				target.Checksums = false // one side is enough
				a, b := options(o).Agent(t, "a"), options(target).Agent(t, "b")
				la, ma := nixltest.Region(t, a, size)
				lb, mb := nixltest.Region(t, b, size)
				nixltest.Fill(ma, 1)
				nixltest.Fill(mb, 1)
				nixltest.Load(t, a, b)
				if err := a.Notify(nixltest.Context(t), "b", nil); err != nil { // connected
					t.Fatal(err)
				}
				nixltest.Next(t, b)
				p.Flip(600 << 10) // in the first chunk, behind what was said before
				x := nixltest.New(t, a, op, []nixl.Desc{la.Desc(0, size)}, []nixl.Desc{lb.Desc(0, size)}, "b",
					nixl.TransferOpts{Ticket: nixltest.Ticket(t, b, op, lb.Desc(0, size)), HasNotify: true})
				err := nixltest.Do(t, x)
				nixltest.WantStatus(t, err, c.want)
				receiver := b
				if op == nixl.Read {
					receiver = a
				}
				if n := receiver.Stats().Refused[nixl.RefusedChecksum]; (n == 1) != c.counted {
					t.Errorf("%d mismatches were counted", n)
				}
				if c.counted && !strings.Contains(err.Error(), "checksum differs") {
					t.Errorf("error = %v", err)
				}
				if c.want != nixl.Success {
					if n := b.Stats(); n.NotifyReceived+uint64(n.NotifyWaiting) > 1 {
						t.Error("the notification was delivered")
					}
				}
				if !c.counted {
					return
				}
				// The connection is in step: the same again passes.
				nixltest.WantStatus(t, nixltest.Do(t, x), nixl.Success)
				nixltest.SameAt(t, b, mb, ma)
			})
		}
	}
}

// TestCorruptedNotification changes a byte of a message.
func TestCorruptedNotification(t *testing.T) {
	p := proxytest.New(t, "")
	a, b := options(Options{dial: through(p), Conns: 1}).Agent(t, "a"), options(Options{Checksums: true}).Agent(t, "b")
	nixltest.Load(t, a, b)
	if err := a.Notify(nixltest.Context(t), "b", nil); err != nil { // connected
		t.Fatal(err)
	}
	nixltest.Next(t, b)
	p.Flip(p.Sent() + 20<<10) // pings may come before it
	msg := make([]byte, 60<<10)
	nixltest.WantStatus(t, a.Notify(nixltest.Context(t), "b", msg), nixl.ErrMismatch)
	if n := b.Stats().Refused[nixl.RefusedChecksum]; n != 1 {
		t.Errorf("%d mismatches were counted", n)
	}
	if err := a.Notify(nixltest.Context(t), "b", msg); err != nil {
		t.Error(err)
	}
	nixltest.Next(t, b)
	nixltest.NoMore(t, b)
}

// TestEphemeralTLS encrypts without certificates that anybody checks: who does not have
// the key gets in neither with nor without TLS, and not between two who have it.
func TestEphemeralTLS(t *testing.T) {
	secure := func() Options {
		cfg, err := handshake.Ephemeral()
		if err != nil {
			t.Fatal(err)
		}
		return Options{TLS: always(cfg)}
	}
	b := options(secure()).Agent(t, "b")
	a := options(secure()).Agent(t, "a")
	nixltest.Load(t, a, b)
	if err := a.Notify(nixltest.Context(t), "b", []byte("hi")); err != nil {
		t.Fatal(err)
	}
	nixltest.Next(t, b)

	stranger := options(secure()).Agent(t, "s", func(c *nixl.Config) { c.Key = handshake.RandomKey() })
	nixltest.Load(t, stranger, b)
	if err := stranger.Notify(nixltest.Context(t), "b", []byte("hi")); !errors.Is(err, handshake.ErrSecret) {
		t.Errorf("another secret: %v", err)
	}
	middle := secure()
	middle.dial = func(ctx context.Context, addr string) (net.Conn, error) { return betrayed(t, addr, secure().TLS()) }
	m := options(middle).Agent(t, "m")
	nixltest.Load(t, m, b)
	if err := m.Notify(nixltest.Context(t), "b", []byte("hi")); !errors.Is(err, handshake.ErrSecret) {
		t.Errorf("with somebody in between: %v", err)
	}
	nixltest.NoMore(t, b)
}

// betrayed is a connection to somebody who speaks TLS to both sides and passes on what
// they say.
func betrayed(t *testing.T, addr string, secure *tls.Config) (net.Conn, error) {
	client, ours := handshaketest.Pair(t)
	out, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	var wg sync.WaitGroup
	in, onward := tls.Server(ours, secure), tls.Client(out, secure)
	wg.Go(func() { _, _ = io.Copy(in, onward); _ = ours.Close() })
	wg.Go(func() { _, _ = io.Copy(onward, in); _ = out.Close() })
	t.Cleanup(func() { _, _ = ours.Close(), out.Close(); wg.Wait() })
	return client, nil
}
