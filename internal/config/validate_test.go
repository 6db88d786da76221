package config_test

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

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
		{"ipv6", []string{"--node-advertise-host=fe80::1", "--frontend-host=::1", "--status-listen=[::1]:9"}, ""},
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
		{"plain nats with an authority", []string{"--nats-url=nats://a:1", "--nats-ca-file=f"}, "--nats-ca-file: nats.ca_file: has no use with nats:// in nats.url: write tls://"},
		{"nats with an authority", []string{"--nats-url=tls://a:1", "--nats-ca-file=f"}, ""},
		{"nats cert without key", []string{"--nats-cert-file=f"}, "nats.key_file: is not set, but nats.cert_file is"},
		{"frontend cert without key", []string{"--frontend-tls-cert-file=f"}, "frontend.tls_key_file: is not set, but frontend.tls_cert_file is"},
		{"frontend client authority alone", []string{"--frontend-tls-client-ca-file=f"}, "frontend.tls_cert_file: is not set, but frontend.tls_client_ca_file is"},
		{"status key without cert", []string{"--status-tls-key-file=f"}, "status.tls_cert_file: is not set, but status.tls_key_file is"},
		{"frontend for all", []string{"--frontend-host=0.0.0.0"}, `--frontend-host: frontend.host: "0.0.0.0" is an address that other hosts reach, where everybody could use the models: set frontend.api_key`},
		{"frontend at no address", []string{"--frontend-host="}, "address that other hosts reach"},
		{"frontend for all, in plain words", []string{"--frontend-host=::", "--frontend-allow-unauthenticated"}, ""},
		{"frontend for certified clients", []string{"--frontend-host=gpu-7", "--frontend-tls-cert-file=c", "--frontend-tls-key-file=k", "--frontend-tls-client-ca-file=a"}, ""},
		{"frontend for all with TLS", []string{"--frontend-host=gpu-7", "--frontend-tls-cert-file=c", "--frontend-tls-key-file=k"}, "address that other hosts reach"},
		{"frontend for all that is off", []string{"--frontend-host=::", "--frontend-enabled=false"}, ""},
		{"probes without a pause", []string{"--health-check-wait=0"}, "--health-check-wait: health_check.wait: 0s is not between 100ms and 1h"},
		{"probes without time", []string{"--health-check-timeout=1ms"}, "--health-check-timeout: health_check.timeout: 1ms is not between 100ms and 1h"},
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

// PEM texts in the place of files may be keys, and credentials are secrets.
func TestSecretsAreNotShown(t *testing.T) {
	const key = "-----BEGIN PRIVATE KEY-----\nhunter2\n"
	_, origins, err := loadDynamod(t, nil, []string{
		"ETCD_AUTH_CLIENT_KEY=" + key, "NATS_AUTH_NKEY=hunter2", "NATS_AUTH_PASSWORD=hunter2", "NATS_AUTH_TOKEN=hunter2",
		"DYN_TLS_KEY_PATH=" + key, "ETCD_AUTH_PASSWORD=hunter2", "ETCD_AUTH_CA=/ca.pem",
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]string{}
	for _, v := range origins.All() {
		if s := fmt.Sprint(v.Text(), v.Plain()); strings.Contains(s, "hunter2") {
			t.Errorf("%s shows %s", v.Key, s)
		}
		shown[v.Key] = v.Text()
	}
	for _, key := range []string{"etcd.key_file", "nats.nkey", "frontend.tls_key_file"} {
		if shown[key] != "(hidden)" {
			t.Errorf("%s shows %q", key, shown[key])
		}
	}
	if shown["etcd.ca_file"] != "/ca.pem" {
		t.Errorf("a path shows %q", shown["etcd.ca_file"])
	}
}

// Of several ways to log in at NATS, Dynamo uses the first of a fixed order.
func TestUnusedLoginsAreTold(t *testing.T) {
	_, origins, err := loadDynamod(t, []string{"--nats-creds-file=f"}, []string{"NATS_AUTH_NKEY=s", "NATS_AUTH_TOKEN=t"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"NATS_AUTH_NKEY: nats.nkey is not used: nats.token is", "--nats-creds-file: nats.creds_file is not used: nats.token is"}
	if got := origins.Warnings(); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Dynamo's flags for the certificate of the frontend are read, too; they are not listed.
func TestDynamosFlagsOfTLS(t *testing.T) {
	cfg, origins, err := loadDynamod(t, []string{"--tls-cert-path=/c.pem", "--tls-key-path", "/k.pem"}, nil, nil)
	if err != nil || cfg.Frontend.TLSCertFile != "/c.pem" || cfg.Frontend.TLSKeyFile != "/k.pem" {
		t.Errorf("%+v %v", cfg.Frontend.TLSServer, err)
	}
	if v, _ := origins.Of("frontend.tls_cert_file"); v.Origin.String() != "--tls-cert-path" {
		t.Errorf("it is said to be from %s", v.Origin)
	}
	flags := pflag.NewFlagSet("dynamod", pflag.ContinueOnError)
	config.DynamodTable().AddFlags(flags, "")
	if usage := flags.FlagUsages(); strings.Contains(usage, "--tls-cert-path") || !strings.Contains(usage, "--frontend-tls-cert-file") {
		t.Error("the wrong flag is listed")
	}
}

func TestTLSFiles(t *testing.T) {
	inline := config.TLSFile{Value: "\n-----BEGIN CERTIFICATE-----"}
	if !inline.Inline() || (config.TLSFile{Value: "/c.pem"}).Inline() {
		t.Error("text and path are confused")
	}
	for _, tc := range []struct {
		e    config.EtcdClient
		want bool
	}{
		{config.EtcdClient{Endpoints: []string{"a:2379", "http://b:2379"}}, false},
		{config.EtcdClient{Endpoints: []string{"a:2379", "https://b:2379"}}, true},
		{config.EtcdClient{CAFile: "c"}, true},
		{config.EtcdClient{CertFile: "c"}, true},
	} {
		if tc.e.WantsTLS() != tc.want {
			t.Errorf("%+v: WantsTLS is %v", tc.e, !tc.want)
		}
	}
	f := config.Frontend{TLSServer: config.TLSServer{TLSCertFile: "c", TLSClientCAFile: "a"}}.TLSFiles()
	if f.Section() != "frontend" || f.Named() != "frontend.tls_cert_file" || f.CA != (config.TLSFile{Setting: "frontend.tls_client_ca_file", Value: "a"}) {
		t.Errorf("%+v", f)
	}
	if (config.NIXL{}).TLSFiles().Any() || !(config.NIXL{TLSCAFile: "a"}).TLSFiles().Any() {
		t.Error("Any is wrong")
	}
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
