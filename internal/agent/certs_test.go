package agent

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/certs"
	"github.com/dynctl/dynctl/internal/config"
)

// folder is one with an authority, a certificate "server" and one "client".
func folder(t *testing.T, days int) certs.Folder {
	t.Helper()
	f := certs.Folder{Dir: t.TempDir()}
	if _, err := f.Init(1000); err != nil {
		t.Fatal(err)
	}
	for _, r := range []certs.Request{{Name: "server", Days: days}, {Name: "client", Client: true, Days: days}} {
		if _, err := f.Issue(r); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

func serverFiles(f certs.Folder) config.TLSServer {
	return config.TLSServer{TLSCertFile: f.Dir + "/server.pem", TLSKeyFile: f.Dir + "/server-key.pem", TLSClientCAFile: f.Dir + "/ca.pem"}
}

// ask asks over HTTPS, with the certificate of a name; without a name, with none.
func ask(t *testing.T, f certs.Folder, name, url string) (code int, body string, _ error) {
	t.Helper()
	c := config.FrontendClient{CAFile: f.Dir + "/ca.pem"}
	if name != "" {
		c.CertFile, c.KeyFile = f.Dir+"/"+name+".pem", f.Dir+"/"+name+"-key.pem"
	}
	follower, err := certs.Follow(c.TLSFiles(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := (&http.Client{Transport: &http.Transport{TLSClientConfig: follower.TLS(), DisableKeepAlives: true}}).Get(url)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b), err
}

// Frontend and status server speak TLS with the certificates of their settings, and a
// certificate that ends soon is an alarm and a metric.
func TestServersWithCertificates(t *testing.T) {
	cfg := testConfig(t)
	long, short := folder(t, 365), folder(t, 1)
	cfg.Frontend.TLSServer, cfg.Status.TLSServer = serverFiles(long), serverFiles(long)
	cfg.NIXL.TLSCertFile, cfg.NIXL.TLSKeyFile, cfg.NIXL.TLSCAFile = short.Dir+"/server.pem", short.Dir+"/server-key.pem", short.Dir+"/ca.pem"
	a := startAgent(t, cfg)
	for _, url := range []string{a.node.FrontendURL + "/live", a.node.StatusURL + "/metrics"} {
		if !strings.HasPrefix(url, "https://") {
			t.Fatalf("the address is %s", url)
		}
		if code, _, err := ask(t, long, "client", url); code != http.StatusOK {
			t.Errorf("%s: %d %v", url, code, err)
		}
		if code, _, err := ask(t, long, "", url); err == nil {
			t.Errorf("%s without a certificate: %d", url, code)
		}
	}
	if texts := a.alarms.texts(); len(texts) != 0 {
		t.Errorf("alarms at first: %q", texts)
	}
	// It is not used, as long as it is valid: nobody else has to know the time.
	if _, err := short.Issue(certs.Request{Name: "server", Renew: true, Days: 0}); err != nil {
		t.Fatal(err)
	}
	a.checkCerts(a.certs.All())
	if texts := a.alarms.texts(); len(texts) != 1 || !strings.Contains(texts[0], "the changed certificate of nixl.tls_cert_file cannot be used") {
		t.Errorf("alarms: %q", texts)
	}
	made, err := short.Issue(certs.Request{Name: "server", Renew: true, Days: 30})
	if err != nil {
		t.Fatal(err)
	}
	a.checkCerts(a.certs.All())
	_, figures, err := ask(t, long, "client", a.node.StatusURL+"/metrics")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		fmt.Sprintf("dynamo_node_certificate_end_seconds{section=%q} %v\n", "nixl", float64(made.Ends.Unix())),
		`dynamo_node_certificate_end_seconds{section="frontend"} `, `dynamo_node_alarm{reason="certificate-nixl"} 0`,
	} {
		if !strings.Contains(figures, want) {
			t.Errorf("metrics lack %s", want)
		}
	}
	if texts := a.alarms.texts(); len(texts) != 0 {
		t.Errorf("alarms afterwards: %q", texts)
	}
	if code, body := get(t, "http://"+a.status.addr+"/live"); code == http.StatusOK {
		t.Errorf("over plain HTTP: %d %s", code, body)
	}
}

// A node does not start with files that cannot be used, and says which.
func TestUnusableCertificates(t *testing.T) {
	f := folder(t, 1)
	for want, change := range map[string]func(*config.Dynamod){
		"frontend.tls_cert_file: open": func(c *config.Dynamod) { c.Frontend.TLSCertFile, c.Frontend.TLSKeyFile = "/absent.pem", "/absent.pem" },
		"status.tls_cert_file and status.tls_key_file: tls: pr": func(c *config.Dynamod) {
			c.Status.TLSCertFile, c.Status.TLSKeyFile = f.Dir+"/server.pem", f.Dir+"/client-key.pem"
		},
		"nixl.tls_cert_file: open": func(c *config.Dynamod) {
			c.NIXL.TLSCertFile, c.NIXL.TLSKeyFile, c.NIXL.TLSCAFile = "/absent.pem", "/absent.pem", f.Dir+"/ca.pem"
		},
		"etcd.ca_file: no certificate in it": func(c *config.Dynamod) {
			c.Etcd.Endpoints, c.Etcd.CAFile = []string{"127.0.0.1:1"}, f.Dir+"/ca-key.pem"
		},
	} {
		cfg := testConfig(t)
		change(&cfg)
		if _, err := tryAgent(t, cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// Transfers over TCP use the certificates of the files, and check who has another one.
func TestNIXLUsesTheCertificates(t *testing.T) {
	ours, theirs := folder(t, 1), folder(t, 1)
	secured := func(f certs.Folder) *Agent {
		cfg := testConfig(t)
		cfg.NIXL.TLSCertFile, cfg.NIXL.TLSKeyFile, cfg.NIXL.TLSCAFile, cfg.NIXL.TLSServerName = f.Dir+"/server.pem", f.Dir+"/server-key.pem", f.Dir+"/ca.pem", "server"
		a, err := New(cfg, Options{Log: testLog(t)})
		if err != nil {
			t.Fatal(err)
		}
		if err := a.secureNIXL(); err != nil {
			t.Fatal(err)
		}
		return a
	}
	a, b, c := secured(ours).nixlTLS(), secured(ours).nixlTLS(), secured(theirs).nixlTLS()
	if a.ServerName != "server" || len(a.Certificates) != 1 || !a.RootCAs.Equal(b.RootCAs) || a.RootCAs.Equal(c.RootCAs) || a.InsecureSkipVerify {
		t.Errorf("%+v", a)
	}
}

// A frontend that other hosts reach without TLS is told, with what to do, and one with TLS is
// not.
func TestFrontendWithoutTLSIsTold(t *testing.T) {
	const told = "the frontend is reached by other hosts without TLS"
	for _, tc := range []struct {
		host   string
		secure bool
		want   bool
	}{{"0.0.0.0", false, true}, {"0.0.0.0", true, false}, {"127.0.0.1", false, false}} {
		cfg := testConfig(t)
		cfg.Frontend.Host, cfg.Frontend.APIKey = tc.host, "s3cret"
		if tc.secure {
			cfg.Frontend.TLSServer = serverFiles(folder(t, 1))
		}
		a := startAgent(t, cfg)
		if got := strings.Contains(read(t, a.dir.AgentLog()), told); got != tc.want {
			t.Errorf("%+v: told is %v", tc, got)
		}
		if err := a.stop(); err != nil {
			t.Error(err)
		}
	}
}
