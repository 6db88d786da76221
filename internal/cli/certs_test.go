package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/certs"
	"github.com/dynctl/dynctl/internal/cli/clitest"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/config"
)

// madeCerts is what dynctl certs prints as JSON.
type madeCerts struct {
	Dir          string
	Certificates []certs.Certificate
	Settings     map[string]string
}

// certsInit runs dynctl certs init in the state directory of env.
func certsInit(t *testing.T, env []string, args ...string) (m madeCerts) {
	t.Helper()
	r := runMain(t.Context(), options{env: env}, append([]string{"certs", "init", "-o", "json"}, args...)...)
	if err := json.Unmarshal([]byte(r.stdout), &m); err != nil || r.code != 0 {
		t.Fatalf("certs init: %+v %v", r, err)
	}
	return m
}

func TestCertsInit(t *testing.T) {
	env, c := keeper(t)
	run := func(args ...string) result {
		t.Helper()
		return runMain(t.Context(), options{env: env}, append([]string{"certs"}, args...)...)
	}
	if r := run("show"); r.code != exit.Failed || !strings.Contains(r.stderr, "try: dynctl certs show\n   or: dynctl certs init") {
		t.Errorf("show of nothing: %+v", r)
	}
	m := certsInit(t, env, "gpu-1=10.0.0.5,gpu-1.example.com", "gpu-2", "--days", "90")
	if m.Dir != filepath.Join(filepath.Dir(c.Path), "certs", "local") || len(m.Certificates) != 4 || m.Certificates[0].Kind != certs.KindAuthority || m.Certificates[1].Kind != certs.KindClient {
		t.Fatalf("%+v", m)
	}
	gpu1 := m.Certificates[2]
	if gpu1.Name != "gpu-1" || strings.Join(gpu1.Hosts, " ") != "10.0.0.5 127.0.0.1 ::1 gpu-1 gpu-1.example.com localhost" {
		t.Errorf("%+v", gpu1)
	}
	if left := time.Until(gpu1.Ends); left > 90*24*time.Hour || left < 89*24*time.Hour {
		t.Errorf("it ends at %s", gpu1.Ends)
	}
	if info, err := os.Stat(gpu1.KeyFile); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
	r := run("init")
	if r.code != exit.Failed || !strings.Contains(r.stderr, "exists already\n  nothing is overwritten") {
		t.Errorf("again: %+v", r)
	}
	r = run("show")
	clitest.Has(t, "show", r.stdout, "NAME", "ca\t", "authority", "gpu-2", "server", "89 days", "10.0.0.5,127.0.0.1,::1,gpu-1,gpu-1.example.com,localhost")
	r = run("show", "gpu-2")
	clitest.Has(t, "show gpu-2", r.stdout, "scp -p ca.pem client.pem client-key.pem gpu-2.pem gpu-2-key.pem gpu-2:/etc/dynctl/certs/", "tls_cert_file: /etc/dynctl/certs/gpu-2.pem", "--tlsverify", "--client-cert-auth")
	r = run("show", "ca")
	clitest.Has(t, "show ca", r.stdout, "ca-key.pem stays here")
	if r := run("show", "gpu-9"); r.code != exit.Failed || !strings.Contains(r.stderr, "there is no certificate gpu-9") {
		t.Errorf("%+v", r)
	}
	if text := readAll(t, m.Dir); strings.Contains(run("show", "-o", "json").stdout+run("show", "gpu-1", "-o", "json").stdout, text) {
		t.Error("a key was shown")
	}
}

// readAll returns a line of a key of the directory.
func readAll(t *testing.T, dir string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "ca-key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(string(text), "\n")[1]
}

func TestCertsIssue(t *testing.T) {
	env, _ := keeper(t)
	run := func(args ...string) result {
		t.Helper()
		return runMain(t.Context(), options{env: env}, append([]string{"certs"}, args...)...)
	}
	if r := run("issue", "gpu-3"); r.code != exit.Failed || !strings.Contains(r.stderr, "dynctl certs init") {
		t.Errorf("before init: %+v", r)
	}
	m := certsInit(t, env)
	before, err := os.ReadFile(m.Certificates[2].CertFile)
	if err != nil {
		t.Fatal(err)
	}
	if r := run("issue", "gpu-3", "--host", "10.0.0.7,10.0.0.8", "-q"); r.code != 0 || r.stdout != filepath.Join(m.Dir, "gpu-3.pem")+"\n"+filepath.Join(m.Dir, "gpu-3-key.pem")+"\n" {
		t.Errorf("%+v", r)
	}
	r := run("issue", "mon", "--client", "--days", "30")
	if r.code != 0 || strings.Contains(r.stdout, "client.pem") || strings.Contains(r.stdout, "dynamod.yaml") {
		t.Errorf("%+v", r)
	}
	clitest.Has(t, "a client", r.stdout, "scp -p ca.pem mon.pem mon-key.pem HOST:", "cert_file: /etc/dynctl/certs/mon.pem")
	name := m.Certificates[2].Name
	if r := run("issue", name); r.code != exit.Failed || !strings.Contains(r.stderr, "exists already") {
		t.Errorf("twice: %+v", r)
	}
	if r := run("issue", name, "--renew"); r.code != 0 {
		t.Errorf("renew: %+v", r)
	}
	if after, err := os.ReadFile(m.Certificates[2].CertFile); err != nil || string(after) == string(before) {
		t.Errorf("nothing was renewed: %v", err)
	}
	for _, args := range [][]string{
		{"issue"}, {"issue", "a", "b"}, {"issue", "a/b"}, {"issue", "ca"}, {"issue", "x", "--client", "--host", "h"}, {"issue", "x", "--days", "0"},
		{"issue", "x", "--host", "a b"}, {"init", "x", "x"}, {"init", "client"}, {"init", "x=a b"}, {"init", "--ca-days", "0"}, {"show", "a", "b"}, {"show", "--dir", ""},
	} {
		if r := run(args...); r.code != exit.Usage {
			t.Errorf("%q: %+v", args, r)
		}
	}
}

// The settings that are printed are those that dynamod and dynctl read, and name files that
// can be used.
func TestCertsSettings(t *testing.T) {
	env, _ := keeper(t)
	m := certsInit(t, env)
	input := func(text string) config.Input {
		return config.Input{Environ: env, ReadFile: func(path string) ([]byte, error) {
			if path == "dynamod.yaml" || path == "dynctl.yaml" {
				return []byte(text), nil
			}
			return nil, os.ErrNotExist
		}}
	}
	node, origins, err := config.LoadDynamod(input(m.Settings["dynamod.yaml"]))
	if err == nil {
		err = origins.Locate(node.Validate())
	}
	if err != nil {
		t.Fatal(err)
	}
	ctl, origins, err := config.LoadDynctl(input(m.Settings["dynctl.yaml"]))
	if err == nil {
		err = origins.Locate(ctl.Validate())
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []config.TLSFiles{
		node.Etcd.TLSFiles(), node.NATS.TLSFiles(), node.Frontend.TLSFiles(), node.Status.TLSFiles(), node.NIXL.TLSFiles(),
		ctl.Etcd.TLSFiles(), ctl.NATS.TLSFiles(), ctl.Frontend.TLSFiles(),
	} {
		if !f.Any() {
			t.Errorf("nothing is set in %+v", f)
		}
		if _, err := certs.Follow(f, nil); err != nil {
			t.Error(err)
		}
	}
}

// The doctor reads the certificates that dynctl uses.
func TestDoctorReadsCertificates(t *testing.T) {
	env, _ := keeper(t)
	m := certsInit(t, env)
	look := func(more ...string) string {
		t.Helper()
		r := runMain(t.Context(), options{env: append(more, env...)}, "doctor")
		for line := range strings.Lines(r.stdout) {
			if strings.Contains(line, "\tcertificates\t") {
				return line
			}
		}
		t.Fatalf("%+v", r)
		return ""
	}
	ended := certs.Folder{Dir: t.TempDir(), Now: func() time.Time { return time.Now().AddDate(0, 0, -2) }}
	if _, err := ended.Init(1); err != nil {
		t.Fatal(err)
	}
	ca, key := "DYNCTL_FRONTEND_CA_FILE=", "ETCD_AUTH_CLIENT_KEY="
	for want, env := range map[string][]string{
		"skip\tdynctl uses no certificates":                  nil,
		"ok\tthose of 1 section of the settings":             {ca + filepath.Join(m.Dir, "ca.pem")},
		"warn\tthe certificate of frontend.ca_file ended at": {ca + filepath.Join(ended.Dir, "ca.pem")},
		"warn\tetcd.cert_file and etcd.key_file: tls:":       {"ETCD_AUTH_CLIENT_CERT=" + filepath.Join(m.Dir, "client.pem"), key + filepath.Join(m.Dir, "ca-key.pem")},
	} {
		if got := look(env...); !strings.Contains(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
