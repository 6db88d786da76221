package embedded_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/dynctl/dynctl/internal/credentials"
	"github.com/dynctl/dynctl/internal/embedded"
	"github.com/dynctl/dynctl/internal/patience"
)

func serverCredentials(t *testing.T, s credentials.Secret) *embedded.Credentials {
	t.Helper()
	c, err := embedded.NewCredentials(s) // for no address
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func clientTLS(t *testing.T, s credentials.Secret) *tls.Config {
	t.Helper()
	c, err := s.ClientTLS("test")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// strangers are clients without a certificate of the cluster: nil for no TLS at all.
func strangers(t *testing.T) map[string]*tls.Config {
	other := clientTLS(t, credentials.New())
	other.VerifyConnection = nil // it would let any server be
	return map[string]*tls.Config{
		"plain text":                     nil,
		"TLS without a certificate":      {InsecureSkipVerify: true},
		"certificate of another cluster": other,
	}
}

func etcdClient(t *testing.T, addr string, secure *tls.Config) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{addr}, TLS: secure, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Both addresses of etcd are closed to whoever has no certificate of the cluster, also
// what is served there over HTTP, and nothing is lost over a restart.
func TestEtcdAsksForCredentials(t *testing.T) {
	s, dir := credentials.New(), t.TempDir()
	peer := freeAddr(t)
	e := startEtcd(t, embedded.EtcdOptions{Dir: dir, PeerAddr: peer, Credentials: serverCredentials(t, s), Log: discard})
	ok := etcdClient(t, e.Endpoint(), clientTLS(t, s))
	if _, err := ok.Put(deadline(t), "k", "v"); err != nil {
		t.Fatalf("with the secret: %v", err)
	}
	paths := []string{"/metrics", "/health", "/livez", "/readyz", "/version", "/debug/vars", "/debug/pprof/", "/config/local/log", "/v3/kv/range", "/members"}
	for name, secure := range strangers(t) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		if got, err := etcdClient(t, e.Endpoint(), secure).Get(ctx, "k"); err == nil {
			t.Errorf("%s: etcd answers %v", name, got)
		}
		cancel()
		for _, addr := range []string{e.Endpoint(), peer} {
			for _, path := range paths {
				if body, ok := fetch(t, addr, path, secure); ok {
					t.Errorf("%s: %s%s answers %q", name, addr, path, body)
				}
			}
		}
	}
	if body, ok := fetch(t, e.Endpoint(), "/version", clientTLS(t, s)); !ok || !strings.Contains(body, "etcdserver") {
		t.Errorf("with the secret /version answers %q: the test above proves nothing", body)
	}
	private(t, dir)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	again := startEtcd(t, embedded.EtcdOptions{Dir: dir, Credentials: serverCredentials(t, s)})
	got, err := etcdClient(t, again.Endpoint(), clientTLS(t, s)).Get(deadline(t), "k")
	if err != nil || len(got.Kvs) != 1 || string(got.Kvs[0].Value) != "v" {
		t.Errorf("after a restart: %v %v", got, err)
	}
}

// Data that was written without certificates is kept by a server that has them.
func TestEtcdTakesUpPlainData(t *testing.T) {
	s, dir := credentials.New(), t.TempDir()
	plain := startEtcd(t, embedded.EtcdOptions{Dir: dir})
	at := plain.Endpoint()
	if _, err := etcdClient(t, at, nil).Put(deadline(t), "k", "v"); err != nil {
		t.Fatal(err)
	}
	if err := plain.Close(); err != nil {
		t.Fatal(err)
	}
	e := startEtcd(t, embedded.EtcdOptions{Dir: dir, ClientAddr: at, Credentials: serverCredentials(t, s), Log: discard})
	got, err := etcdClient(t, at, clientTLS(t, s)).Get(deadline(t), "k")
	if err != nil || len(got.Kvs) != 1 {
		t.Errorf("%v %v", got, err)
	}
	if _, ok := fetch(t, e.Endpoint(), "/version", nil); ok {
		t.Error("it still answers in plain text")
	}
}

// NATS says nothing to whoever has no certificate of the cluster, not even who it is.
func TestNATSAsksForCredentials(t *testing.T) {
	s, dir := credentials.New(), t.TempDir()
	var told patience.Buffer
	log := slog.New(slog.NewTextHandler(&told, nil))
	n := startNATS(t, embedded.NATSOptions{Dir: dir, Credentials: serverCredentials(t, s), Log: log})
	connect := func(opts ...nats.Option) error {
		c, err := nats.Connect("nats://"+n.Addr(), append(opts, nats.Timeout(5*time.Second))...)
		if err != nil {
			return err
		}
		defer c.Close()
		js, err := c.JetStream()
		if err != nil {
			return err
		}
		if _, err := js.AccountInfo(); err != nil {
			return err
		}
		return c.FlushTimeout(5 * time.Second)
	}
	if err := connect(nats.Secure(clientTLS(t, s)), nats.TLSHandshakeFirst()); err != nil {
		t.Fatalf("with the secret: %v", err)
	}
	for name, secure := range strangers(t) {
		opts := []nats.Option{nats.Timeout(time.Second)}
		if secure != nil {
			opts = append(opts, nats.Secure(secure), nats.TLSHandshakeFirst())
		}
		if err := connect(opts...); err == nil {
			t.Errorf("%s: NATS lets it in", name)
		}
	}
	// Silent for whoever only listens, or asks in plain text.
	for _, say := range []string{"", "CONNECT {}\r\nPING\r\n", "GET /varz HTTP/1.0\r\n\r\n"} {
		c, err := net.Dial("tcp", n.Addr())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(c, say)
		_ = c.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
		line, _ := bufio.NewReader(c).ReadString('\n')
		_ = c.Close()
		if strings.Contains(line, "INFO") || strings.Contains(line, "PONG") || strings.Contains(line, "HTTP") {
			t.Errorf("to %q it says %q", say, line)
		}
	}
	private(t, dir)
	// Whoever knocks often does not fill the log.
	if got := told.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "turned away") {
		t.Errorf("it logged:\n%s", got)
	}
}

// fetch gets a path over HTTP and reports whether anything answered.
func fetch(t *testing.T, addr, path string, secure *tls.Config) (string, bool) {
	t.Helper()
	scheme := "http"
	if secure != nil {
		scheme = "https"
	}
	transport := &http.Transport{TLSClientConfig: secure, DisableKeepAlives: true}
	c := &http.Client{Transport: transport, Timeout: 5 * time.Second}
	resp, err := c.Get(scheme + "://" + addr + path)
	if err != nil {
		return "", false
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	// What Go's server tells a client that speaks HTTP to a TLS port is no answer of etcd.
	if strings.Contains(string(body), "Client sent an HTTP request to an HTTPS server") {
		return "", false
	}
	return string(body), true
}

// private fails unless a directory and all below it are for their owner only.
func private(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		// Files below a directory of mode 0700 are out of reach, whatever their own mode.
		if (d.IsDir() || strings.HasSuffix(path, ".pem")) && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A server starts again with the credentials that it has kept when nothing more can be
// written, and takes none that are broken.
func TestCredentialsAreKept(t *testing.T) {
	s, dir := credentials.New(), t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	creds := serverCredentials(t, s)
	startEtcd(t, embedded.EtcdOptions{Dir: dir, Credentials: creds}).Close()
	private(t, dir)
	key := filepath.Join(dir, "tls", "server-key.pem")
	before, err := os.Stat(key)
	if err != nil {
		t.Fatal(err)
	}
	startEtcd(t, embedded.EtcdOptions{Dir: dir, Credentials: creds}).Close()
	if after, err := os.Stat(key); err != nil || !after.ModTime().Equal(before.ModTime()) || !os.SameFile(before, after) {
		t.Errorf("the key was written again: %v", err)
	}
	broken := &embedded.Credentials{CA: creds.CA, Cert: creds.Cert, Key: []byte("none")}
	log := slog.New(slog.DiscardHandler)
	if e, err := embedded.StartEtcd(deadline(t), embedded.EtcdOptions{Dir: t.TempDir(), ClientAddr: "127.0.0.1:0", Credentials: broken, Log: log}); err == nil {
		_ = e.Close()
		t.Error("etcd starts with a broken key")
	}
	if n, err := embedded.StartNATS(deadline(t), embedded.NATSOptions{Dir: t.TempDir(), Addr: "127.0.0.1:0", Credentials: broken, Log: log}); err == nil {
		_ = n.Close()
		t.Error("NATS starts with a broken key")
	}
}

func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
