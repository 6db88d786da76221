package clustertest_test

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// What dynctl credentials --export writes lets other tools in: a client of NATS, and
// etcdctl where it is installed. Without it both are closed.
func TestExportedCredentials(t *testing.T) {
	t.Parallel()
	p := buildPrograms(t)
	p.must(0, "up", "--prefill", "0", "--decode", "1", "--port", "0")
	var x struct {
		CA, Cert, Key string
		Env           []string
	}
	// Without notes, which run mixes in.
	out := p.must(0, "credentials", "--export", t.TempDir(), "-o", "json")
	if err := json.Unmarshal([]byte(out), &x); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	env := map[string]string{}
	for _, v := range x.Env {
		name, value, _ := strings.Cut(v, "=")
		env[name] = value
	}

	pair, err := tls.LoadX509KeyPair(env["NATS_CERT"], env["NATS_KEY"])
	if err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(env["NATS_CA"])
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	at, err := url.Parse(env["NATS_URL"])
	if err != nil || at.Scheme != "tls" {
		t.Fatalf("NATS_URL=%s %v", env["NATS_URL"], err)
	}
	greeting := func(certs ...tls.Certificate) string {
		t.Helper()
		// The host is compared, as tools do.
		c, err := tls.Dial("tcp", at.Host, &tls.Config{RootCAs: pool, Certificates: certs})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		line, _ := bufio.NewReader(c).ReadString('\n')
		return line
	}
	if line := greeting(pair); !strings.HasPrefix(line, "INFO {") {
		t.Errorf("with the certificate NATS says %q", line)
	}
	if line := greeting(); line != "" {
		t.Errorf("without one NATS says %q", line)
	}

	etcdctl, err := exec.LookPath("etcdctl")
	if err != nil {
		t.Skip("etcdctl is not installed (apt-get install etcd-client): that it gets in is not tried")
	}
	run := func(environ []string, args ...string) (string, error) {
		cmd := exec.Command(etcdctl, append(args, "--command-timeout=5s", "--dial-timeout=5s")...)
		cmd.Env = append([]string{"PATH=" + os.Getenv("PATH")}, environ...)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := run(x.Env, "get", "--prefix", "/dynctl/", "--keys-only"); err != nil || !strings.Contains(out, "/dynctl/dynamo/topology") {
		t.Errorf("etcdctl: %v\n%s", err, out)
	}
	if out, err := run([]string{"ETCDCTL_API=3", "ETCDCTL_ENDPOINTS=" + strings.TrimPrefix(env["ETCDCTL_ENDPOINTS"], "https://")}, "get", "--prefix", "/dynctl/"); err == nil {
		t.Errorf("etcdctl without a certificate: %s", out)
	}
}
