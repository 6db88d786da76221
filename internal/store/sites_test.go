package store_test

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/dynctl/dynctl/internal/embedded"
	"github.com/dynctl/dynctl/internal/natsconn"
	"github.com/dynctl/dynctl/internal/orphan"
	"github.com/dynctl/dynctl/internal/store"
	"github.com/dynctl/dynctl/internal/store/storetest"
)

// How a site lets clients in.
const (
	open           = "without users"
	user           = "user"
	certificate    = "certificate and user"
	certificateFor = "certificate of a user"
)

// site is one way to run etcd and to be let in, or NATS.
type site struct {
	nats    bool   // inside this process, open to all; the rest is about etcd
	process string // path of a program; empty for the server inside this process
	access  string
	pki     *pki // nil for plain text
}

// everySite runs a test over embedded etcd and over the etcd program of this machine, such
// as Debian's 3.4, with each way to be let in. $DYNCTL_ETCD names the program; without it,
// and without one in $PATH, its tests are skipped.
func everySite(t *testing.T, test func(t *testing.T, s *site)) {
	t.Parallel()
	program, missing := etcdProgram()
	for _, access := range []string{open, user, certificate, certificateFor} {
		t.Run("embedded/"+access, func(t *testing.T) {
			t.Parallel()
			test(t, newSite(t, "", access))
		})
		t.Run("process/"+access, func(t *testing.T) {
			if missing != nil {
				t.Skipf("no etcd program; install Debian's etcd-server or set DYNCTL_ETCD: %v", missing)
			}
			t.Parallel()
			test(t, newSite(t, program, access))
		})
	}
}

// everyStore runs a test over the sites of etcd and over NATS.
func everyStore(t *testing.T, test func(t *testing.T, s *site)) {
	everySite(t, test)
	t.Run("nats", func(t *testing.T) {
		t.Parallel()
		test(t, &site{nats: true, access: open})
	})
}

func etcdProgram() (string, error) {
	if program := os.Getenv("DYNCTL_ETCD"); program != "" {
		_, err := os.Stat(program)
		return program, err
	}
	return exec.LookPath("etcd")
}

func newSite(t *testing.T, process, access string) *site {
	s := &site{process: process, access: access}
	switch access {
	case certificate:
		s.pki = newPKI(t, "")
	case certificateFor:
		s.pki = newPKI(t, "root")
	}
	return s
}

// url is the address in the form that clients of the site need.
func (s *site) url(addr string) string {
	if s.pki != nil {
		return "https://" + addr
	}
	return "http://" + addr
}

// config returns the client configuration for addr, the address of a server or of a proxy
// before it.
func (s *site) config(addr string) store.EtcdConfig {
	cfg := store.EtcdConfig{Endpoints: []string{s.url(addr)}, DialTimeout: storetest.Patience}
	if s.access == user || s.access == certificate {
		cfg.Username, cfg.Password = "root", "secret"
	}
	if s.pki != nil {
		cfg.TLS = func() *tls.Config { return s.pki.client }
	}
	return cfg
}

// open connects to addr.
func (s *site) open(t *testing.T, addr string) store.Store {
	t.Helper()
	c, err := s.connect(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func (s *site) connect(addr string) (store.Store, error) {
	if s.nats {
		return store.NewNATS(store.NATSConfig{Config: natsconn.Config{URL: "nats://" + addr}}, storetest.Discard)
	}
	return store.NewEtcd(s.config(addr), storetest.Discard)
}

// etcd connects to addr, which is that of an etcd.
func (s *site) etcd(t *testing.T, addr string) *store.Etcd {
	t.Helper()
	return openWith(t, s.config(addr))
}

// anybody is a connection without a user name.
func (s *site) anybody(t *testing.T, addr string) *store.Etcd {
	t.Helper()
	cfg := s.config(addr)
	cfg.Username, cfg.Password = "", ""
	return openWith(t, cfg)
}

func openWith(t *testing.T, cfg store.EtcdConfig) *store.Etcd {
	t.Helper()
	e, err := store.NewEtcd(cfg, storetest.Discard)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// server is a running etcd or NATS.
type server struct {
	site *site
	addr string // host:port
	end  func() // kills a process, closes an embedded one; may be called twice
}

// start starts etcd in an empty directory and has it ask for a user if the site is to.
func (s *site) start(t *testing.T, dir string) *server {
	t.Helper()
	e, err := s.launch(t, dir, freeAddr(t))
	for range 3 { // somebody else may have been faster to take the address
		if err == nil {
			break
		}
		dir = filepath.Join(dir, "again")
		e, err = s.launch(t, dir, freeAddr(t))
	}
	if err != nil {
		t.Fatal(err)
	}
	if s.access == open {
		return e
	}
	admin := s.anybody(t, e.addr)
	ctx, cancel := context.WithTimeout(t.Context(), storetest.Patience)
	defer cancel()
	c := admin.Client()
	for _, step := range []func() error{
		func() error { _, err := c.UserAdd(ctx, "root", "secret"); return err },
		func() error { _, err := c.RoleAdd(ctx, "root"); return err },
		func() error { _, err := c.UserGrantRole(ctx, "root", "root"); return err },
		func() error { _, err := c.AuthEnable(ctx); return err },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	return e
}

// stop ends the server and returns a function that starts it again on the same address, in
// the given directory. The write puts into the database how far the log was applied, and
// defragmentation has that committed: log-ins from before are not found again when the
// server reads its log, so that their tokens are lost.
func (e *server) stop(t *testing.T) (restart func(t *testing.T, dir string) *server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), storetest.Patience)
	defer cancel()
	if !e.site.nats {
		s := e.site.etcd(t, e.addr)
		if _, err := s.Put(ctx, "stopping", nil); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Client().Defragment(ctx, e.site.url(e.addr)); err != nil {
			t.Fatal(err)
		}
	}
	e.end()
	return func(t *testing.T, dir string) *server {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), storetest.Patience)
		defer cancel()
		for {
			again, err := e.site.launch(t, dir, e.addr)
			if err == nil {
				return again
			}
			select { // somebody may have the address for a moment
			case <-time.After(50 * time.Millisecond):
			case <-ctx.Done():
				t.Fatal(err)
			}
		}
	}
}

// launch starts etcd and waits until it answers.
func (s *site) launch(t *testing.T, dir, addr string) (*server, error) {
	t.Helper()
	e := &server{site: s, addr: addr}
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	var err error
	switch {
	case s.nats:
		e.end, err = s.launchNATS(t, dir, addr)
	case s.process != "":
		e.end, err = s.launchProcess(t, dir, addr, cancel)
	case s.pki != nil:
		e.end, err = s.launchTLS(t, dir, addr)
	default:
		e.end, err = s.launchPlain(t, dir, addr)
	}
	if err != nil {
		return nil, err
	}
	e.end = sync.OnceFunc(e.end)
	t.Cleanup(e.end)
	if s.nats { // it has answered
		return e, nil
	}
	// A server that refuses a client without a user name has answered.
	if err := storetest.AwaitAnswer(ctx, s.anybody(t, addr)); err != nil {
		return nil, errors.Join(err, context.Cause(ctx))
	}
	return e, nil
}

func (s *site) launchNATS(t *testing.T, dir, addr string) (end func(), err error) {
	t.Helper()
	n, err := embedded.StartNATS(t.Context(), embedded.NATSOptions{Dir: dir, Addr: addr, Log: storetest.Discard})
	if err != nil {
		return nil, err
	}
	return func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	}, nil
}

func (s *site) launchPlain(t *testing.T, dir, addr string) (end func(), err error) {
	t.Helper()
	e, err := embedded.StartEtcd(t.Context(), embedded.EtcdOptions{Dir: dir, ClientAddr: addr, Log: storetest.Discard, UnsafeNoFsync: true})
	if err != nil {
		return nil, err
	}
	return func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}, nil
}

// launchProcess starts the program; failed is called when it ends.
func (s *site) launchProcess(t *testing.T, dir, addr string, failed func(error)) (kill func(), err error) {
	t.Helper()
	peer := "http://" + freeAddr(t)
	args := []string{
		"--name=d", "--data-dir=" + filepath.Join(dir, "data"), "--listen-client-urls=" + s.url(addr), "--advertise-client-urls=" + s.url(addr),
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=d=" + peer,
		"--heartbeat-interval=20", "--election-timeout=200", "--bcrypt-cost=4", "--logger=zap", "--log-level=error",
	}
	if s.pki != nil {
		args = append(args, "--client-cert-auth", "--trusted-ca-file="+s.pki.caFile, "--cert-file="+s.pki.certFile, "--key-file="+s.pki.keyFile)
	}
	cmd := exec.Command(s.process, args...)
	cmd.Stderr = t.Output()
	if err := orphan.Start(cmd); err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		failed(fmt.Errorf("%s has ended: %w", s.process, cmp.Or(cmd.Wait(), io.EOF)))
	}()
	return func() {
		_ = cmd.Process.Kill() // an error means that it has ended
		<-ended
	}, nil
}

// launchTLS starts a server inside this process that asks for certificates.
func (s *site) launchTLS(t *testing.T, dir, addr string) (end func(), err error) {
	t.Helper()
	cfg := embed.NewConfig()
	cfg.Dir, cfg.UnsafeNoFsync, cfg.BcryptCost, cfg.TickMs, cfg.ElectionMs = dir, true, 4, 20, 200
	cfg.ListenClientUrls = []url.URL{{Scheme: "https", Host: addr}}
	cfg.AdvertiseClientUrls = cfg.ListenClientUrls
	cfg.ListenPeerUrls = []url.URL{{Scheme: "http", Host: freeAddr(t)}}
	cfg.AdvertisePeerUrls = cfg.ListenPeerUrls
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.ClientTLSInfo = transport.TLSInfo{CertFile: s.pki.certFile, KeyFile: s.pki.keyFile, TrustedCAFile: s.pki.caFile, ClientCertAuth: true}
	cfg.EnableGRPCGateway = false
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	e, err := embed.StartEtcd(cfg)
	if err != nil {
		return nil, err
	}
	return e.Close, nil
}

// taken are the ports that freeAddr has given out.
var taken sync.Map

// freeAddr is a loopback address for a server that will be restarted on it. Its port is below
// those that systems give to outgoing connections, one of which could have it in between.
func freeAddr(t *testing.T) string {
	t.Helper()
	for range 100 {
		addr := fmt.Sprintf("127.0.0.1:%d", 20000+mathrand.N(12000))
		if _, again := taken.LoadOrStore(addr, true); again {
			continue
		}
		if l, err := net.Listen("tcp", addr); err == nil {
			l.Close()
			return addr
		}
	}
	t.Fatal("no free port")
	return ""
}

// pki is a certificate authority with one certificate for servers and one for clients.
type pki struct {
	caFile, certFile, keyFile string
	client                    *tls.Config
}

// newPKI makes certificates; clients have clientName in theirs.
func newPKI(t *testing.T, clientName string) *pki {
	t.Helper()
	dir := t.TempDir()
	p := &pki{caFile: filepath.Join(dir, "ca.pem"), certFile: filepath.Join(dir, "server.pem"), keyFile: filepath.Join(dir, "server.key")}
	ca, caDER := sign(t, "authority", nil)
	serverKey, serverDER := sign(t, "", ca)
	clientKey, clientDER := sign(t, clientName, ca)
	keyDER, err := x509.MarshalPKCS8PrivateKey(serverKey.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	for path, block := range map[string]*pem.Block{
		p.caFile:   {Type: "CERTIFICATE", Bytes: caDER},
		p.certFile: {Type: "CERTIFICATE", Bytes: serverDER},
		p.keyFile:  {Type: "PRIVATE KEY", Bytes: keyDER},
	} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pool := x509.NewCertPool()
	pool.AddCert(ca.Leaf)
	p.client = &tls.Config{
		RootCAs: pool, MinVersion: tls.VersionTLS12,
		Certificates: []tls.Certificate{{Certificate: [][]byte{clientDER}, PrivateKey: clientKey.PrivateKey}},
	}
	return p
}

// sign makes a key and its certificate, which signs itself without an authority.
func sign(t *testing.T, name string, ca *tls.Certificate) (*tls.Certificate, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	parent, signer := c, key
	if ca == nil {
		c.IsCA, c.BasicConstraintsValid, c.KeyUsage = true, true, x509.KeyUsageCertSign
	} else {
		parent, signer = ca.Leaf, ca.PrivateKey.(*ecdsa.PrivateKey)
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, der
}
