package clustertest_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/dynctl/dynctl/internal/certs"
	"github.com/dynctl/dynctl/internal/dial/dialtest"
	"github.com/dynctl/dynctl/internal/orphan"
	"github.com/dynctl/dynctl/internal/patience"
)

// dynamod starts a node, until the test ends.
func (p *programs) dynamod(args ...string) {
	p.t.Helper()
	cmd := exec.Command(filepath.Join(p.bin, "dynamod"), args...)
	cmd.Env = p.env
	var log strings.Builder
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := orphan.Start(cmd); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			p.t.Errorf("dynamod: %v", err)
		}
		if p.t.Failed() {
			p.t.Log(log.String())
		}
	})
}

// The way of a user with etcd and NATS of their own, and with the certificates and settings of
// dynctl certs for all of them: a cluster serves over HTTPS, moves KV over TLS, and goes on when
// a server is restarted and when the certificates are renewed.
func TestProgramsOnServersOfOnesOwn(t *testing.T) {
	t.Parallel()
	p := buildPrograms(t)
	plain := slices.Clone(p.env)
	dir := t.TempDir()
	var made struct{ Settings map[string]string }
	if err := json.Unmarshal([]byte(p.must(0, "certs", "init", "server=127.0.0.1", "--dir", dir, "-o", "json")), &made); err != nil {
		t.Fatal(err)
	}
	access := dialtest.Access{Folder: &certs.Folder{Dir: dir}, Mutual: true, User: "root", Password: "s3cret"}
	etcd, nats := dialtest.StartEtcd(t, access), dialtest.StartNATS(t, access)
	at := strings.NewReplacer("/etc/dynctl/certs", dir, "https://HOST:2379", etcd.Client().Endpoints[0], "tls://HOST:4222", nats.Client().URL)
	for _, program := range []string{"dynctl", "dynamod"} {
		file := filepath.Join(dir, program+".yaml")
		if err := os.WriteFile(file, []byte(at.Replace(made.Settings[program+".yaml"])), 0o600); err != nil {
			t.Fatal(err)
		}
		p.env = append(p.env, strings.ToUpper(program)+"_CONFIG="+file)
	}
	p.env = append(p.env, "ETCD_AUTH_USERNAME=root", "ETCD_AUTH_PASSWORD=s3cret", "NATS_AUTH_USERNAME=root", "NATS_AUTH_PASSWORD=s3cret", "DYNAMOD_SECRET_FILE="+filepath.Join(dir, "secret"), "DYNCTL_SECRET_FILE="+filepath.Join(dir, "secret"))
	t.Cleanup(func() { p.env = plain }) // the last look of all finds nothing that runs
	p.dynamod("--node-name=node-1", "--frontend-port="+strconv.Itoa(p.port), "--node-roles=decode", "--nixl-transports=tcp", "--etcd-lease-ttl=3s")
	patience.Until(t, "the secret is there", func() bool { _, err := os.Stat(filepath.Join(dir, "secret")); return err == nil })
	p.dynamod("--node-name=node-2", "--frontend-enabled=false", "--node-roles=prefill", "--nixl-transports=tcp", "--disagg-strategy=prefill-first")
	url := "https://127.0.0.1:" + strconv.Itoa(p.port)
	patience.Until(t, "both nodes are up", func() bool {
		out, code := p.run("ps", "--nodes", "-o", "name")
		return code == 0 && strings.Count(out, "node-") == 2
	})
	if out := p.must(0, "up", "--prefill", "1", "--decode", "1"); !strings.Contains(out, url) || !strings.Contains(out, "--cacert "+dir) {
		t.Errorf("up does not say the URL, and a curl line with the authority:\n%s", out)
	}
	question := strings.Repeat("tell me what moves between the workers ", 20)
	ask := func(when string, more ...string) string {
		t.Helper()
		out, code := p.run(append([]string{"chat", question, "--max-tokens", "12", "--temperature", "0", "-q"}, more...)...)
		if code != 0 || out == "" {
			t.Fatalf("%s: exit %d\n%s", when, code, out)
		}
		return out
	}
	want := ask("at first")
	again := func(when string, more ...string) {
		t.Helper()
		if got := ask(when, more...); got != want {
			t.Errorf("%s: %q, want %q", when, got, want)
		}
	}
	if out := p.must(0, "explain", "path", "worker-1", "worker-2"); !strings.Contains(out, "with TLS") {
		t.Errorf("KV moves without TLS:\n%s", out)
	}
	etcd.Restart()
	again("after a restart of etcd")
	nats.Restart()
	again("after a restart of NATS")

	for _, name := range []string{"server", "client"} {
		p.must(0, "certs", "issue", name, "--renew", "--dir", dir)
	}
	etcd.Kill()
	nats.Kill()
	again("without etcd and NATS", "--url", url)
	etcd.Restart()
	nats.Restart()
	patience.Until(t, "the cluster is whole", func() bool {
		out, code := p.run("ps", "-o", "wide")
		return code == 0 && strings.Count(out, "ready") == 2
	})
	again("with new certificates")
	if out, _ := p.run("doctor"); !strings.Contains(out, url+" lists") || strings.Contains(out, "certificate of") {
		t.Errorf("doctor:\n%s", out)
	}
}
