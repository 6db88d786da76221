package config_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io/fs"
	"log/slog"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/config"
)

func TestDynamodValidate(t *testing.T) {
	for _, tc := range []struct {
		name string
		args []string
		want string // empty: accepted
	}{
		{"defaults", nil, ""},
		{"external etcd", []string{"--etcd-endpoints=a:2379,https://b:2379"}, ""},
		{"ipv6", []string{"--node-advertise-host=fe80::1", "--frontend-host=::", "--status-listen=[::1]:9"}, ""},
		{"all addresses", []string{"--nixl-listen=:9000"}, ""},
		{"profiles", []string{"--status-profiles", "--status-listen=[::1]:9"}, ""},
		{"profiles for all", []string{"--status-profiles", "--status-listen=:9"}, "status.profiles: is set, but status.listen is :9"},
		{"profiles for others", []string{"--status-profiles", "--status-listen=10.0.0.1:9"}, "loopback only"},
		{"external etcd without endpoints", []string{"--etcd-mode=external"}, "etcd.endpoints: is empty, but etcd.mode is external"},
		{"external nats without url", []string{"--nats-mode=external"}, "nats.url: is empty, but nats.mode is external"},
		{"endpoint without port", []string{"--etcd-endpoints=a"}, `--etcd-endpoints: etcd.endpoints: "a" is not an endpoint`},
		{"endpoint with path", []string{"--etcd-endpoints=http://a:1/x"}, "is not an endpoint"},
		{"endpoint with odd scheme", []string{"--etcd-endpoints=nats://a:1"}, "is not an endpoint"},
		{"nats over http", []string{"--nats-url=http://a:4222"}, `--nats-url: nats.url: "http://a:4222" is not a server`},
		{"cert without key", []string{"--etcd-cert-file=c"}, "etcd.key_file: is not set, but etcd.cert_file is"},
		{"NIXL cert without key", []string{"--nixl-tls-cert-file=c", "--nixl-tls-ca-file=a"}, "nixl.tls_key_file: is not set, but nixl.tls_cert_file is"},
		{"NIXL cert without authority", []string{"--nixl-tls-cert-file=c", "--nixl-tls-key-file=k"}, "nixl.tls_ca_file: is not set, but nixl.tls_cert_file is"},
		{"NIXL authority alone", []string{"--nixl-tls-ca-file=a"}, "nixl.tls_cert_file: is not set, but nixl.tls_ca_file is"},
		{"NIXL name alone", []string{"--nixl-tls-server-name=n"}, "nixl.tls_cert_file: is not set, but nixl.tls_server_name is"},
		{"key without cert", []string{"--etcd-key-file=c"}, "etcd.cert_file: is not set, but etcd.key_file is"},
		{"user without password", []string{"--etcd-username=u"}, "etcd.password: is not set, but etcd.username is"},
		{"two nats logins", []string{"--nats-username=u", "--nats-creds-file=f"}, "--nats-username: nats.username: cannot be combined with nats.creds_file"},
		{"no time to read", []string{"--frontend-write-timeout=0"}, "--frontend-write-timeout: frontend.write_timeout: 0s is not between 1s and 1h"},
		{"target in nanoseconds", []string{"--engine-itl-target=100us"}, "--engine-itl-target: engine.itl_target: 100µs is not a number of whole milliseconds up to 24h"},
		{"speculation", []string{"--engine-speculative=eagle"}, `--engine-speculative: engine.speculative: "eagle" is not off or ngram; expected off, ngram, ngram:5, or ngram:num_speculative_tokens=5,prompt_lookup_max=4,prompt_lookup_min=2`},
		{"block size", []string{"--engine-block-size=48"}, "--engine-block-size: engine.block_size: 48 is not a number of tokens: expected 16, 32, 64 or 128"},
		{"lease ttl too short", []string{"--etcd-lease-ttl=1s"}, "etcd.lease_ttl: 1s is not a number of whole seconds from 2s to 1h"},
		{"lease ttl not whole", []string{"--etcd-lease-ttl=2500ms"}, "2.5s is not"},
		{"listen without port", []string{"--status-listen=127.0.0.1"}, `"127.0.0.1" is not an address`},
		{"listen on a service name", []string{"--status-listen=127.0.0.1:http"}, "is not an address"},
		{"advertise with port", []string{"--node-advertise-host=a:1"}, "is not a host name"},
		{"node name", []string{"--node-name=rack 1"}, `"rack 1" is not a name`},
		{"taint", []string{"--node-taints=zone=a,gpu h100"}, `node.taints: "gpu h100" is not a taint`},
		{"slash in cluster", []string{"--cluster=a/b"}, `"a/b" is not a name`},
		{"namespace", []string{"--namespace=Team"}, `--namespace: namespace: namespace "Team"`},
		{"body limit", []string{"--frontend-body-limit=0"}, "0 would refuse every request"},
		{"remote prefill timeout", []string{"--disagg-remote-prefill-timeout=0"}, "0 would never wait"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg, origins, err := loadDynamod(t, tc.args, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			err = origins.Locate(cfg.Validate())
			switch {
			case tc.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

// A configuration written in code has not been parsed, so Validate checks the
// table's limits as well.
func TestValidateChecksLimitsOfUnparsedValues(t *testing.T) {
	cfg, _, err := loadDynamod(t, nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Engine.KVBlocks = -1
	cfg.Router.Policy = "dice"
	cfg.Drain.Deadline = -time.Second
	cfg.StateDir = ""
	var problems config.Problems
	if err := cfg.Validate(); !errors.As(err, &problems) || len(problems) != 4 {
		t.Fatalf("got %v, want four problems", err)
	}
	if err := (config.Dynctl{}).Validate(); err == nil {
		t.Error("the zero Dynctl is accepted")
	}
}

func TestNoHomeNoStateDir(t *testing.T) {
	cfg, origins, err := config.LoadDynamod(config.Input{ReadFile: func(string) ([]byte, error) { return nil, fs.ErrNotExist }})
	if err != nil {
		t.Fatal(err)
	}
	if err := origins.Locate(cfg.Validate()); err == nil || !strings.Contains(err.Error(), "state_dir: is empty and there is no home directory") {
		t.Errorf("got %v", err)
	}
}

func TestNIXLTLS(t *testing.T) {
	cert, key := certificate(t)
	read := func(string) ([]byte, error) { return nil, fs.ErrNotExist }
	if c, err := (config.NIXL{}).TLS(read); c != nil || err != nil {
		t.Errorf("without a certificate: %v, %v", c, err)
	}
	n := config.NIXL{TLSCAFile: cert, TLSCertFile: cert, TLSKeyFile: key, TLSServerName: "peer"}
	c, err := n.TLS(read)
	if err != nil || c.RootCAs == nil || len(c.Certificates) != 1 || c.ServerName != "peer" {
		t.Errorf("TLS() = %+v, %v", c, err)
	}
	n.TLSCAFile = "/absent.pem"
	if _, err := n.TLS(read); err == nil || !strings.HasPrefix(err.Error(), "nixl.tls_ca_file: file does not") {
		t.Errorf("TLS() without a file: %v", err)
	}
}

func TestEtcdTLS(t *testing.T) {
	cert, key := certificate(t)
	files := map[string]string{"/ca.pem": cert, "/c.pem": cert, "/k.pem": key, "/bad.pem": "no certificate"}
	read := func(path string) ([]byte, error) {
		if text, ok := files[path]; ok {
			return []byte(text), nil
		}
		return nil, fs.ErrNotExist
	}
	if c, err := (config.EtcdClient{Endpoints: []string{"a:2379"}}).TLS(read); c != nil || err != nil {
		t.Errorf("plain endpoint: %v, %v", c, err)
	}
	if c, err := (config.EtcdClient{Endpoints: []string{"https://a:2379"}}).TLS(read); c == nil || err != nil {
		t.Errorf("https endpoint: %v, %v", c, err)
	}
	for name, e := range map[string]config.EtcdClient{
		"files": {CAFile: "/ca.pem", CertFile: "/c.pem", KeyFile: "/k.pem"},
		"text":  {CAFile: cert, CertFile: cert, KeyFile: key},
	} {
		c, err := e.TLS(read)
		if err != nil || c.RootCAs == nil || len(c.Certificates) != 1 {
			t.Errorf("%s: %+v, %v", name, c, err)
		}
	}
	for want, e := range map[string]config.EtcdClient{
		"etcd.ca_file: no certificate": {CAFile: "/bad.pem"},
		"etcd.ca_file: file does not":  {CAFile: "/absent.pem"},
		"etcd.key_file: file does not": {CertFile: "/c.pem", KeyFile: "/absent.pem"},
		"etcd.cert_file: tls":          {CertFile: "/bad.pem", KeyFile: "/k.pem"},
	} {
		if _, err := e.TLS(read); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func certificate(t *testing.T) (certPEM, keyPEM string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}))
}

func TestLogHandler(t *testing.T) {
	for _, tc := range []struct {
		log  config.Log
		want string
	}{
		{config.Log{Level: "warn", Format: "json"}, `"msg":"two"`},
		{config.Log{Level: "warn", Format: "text"}, "msg=two"},
	} {
		var b strings.Builder
		log := slog.New(tc.log.Handler(&b))
		log.Info("one")
		log.Warn("two")
		if got := b.String(); strings.Contains(got, "one") || !strings.Contains(got, tc.want) {
			t.Errorf("%+v wrote %s", tc.log, got)
		}
	}
}
