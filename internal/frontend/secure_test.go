package frontend

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/certs"
	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/patience"
)

// secured runs a frontend with the certificate "server" of a folder. clients are asked for
// certificates if mutual is set.
func (w *world) secured(folder certs.Folder, mutual bool) *front {
	w.t.Helper()
	server, err := folder.Issue(certs.Request{Name: "server", Days: 1})
	if err != nil {
		w.t.Fatal(err)
	}
	c := config.Frontend{TLSServer: config.TLSServer{TLSCertFile: server.CertFile, TLSKeyFile: server.KeyFile}}
	if mutual {
		c.TLSClientCAFile = folder.Dir + "/ca.pem"
	}
	follower, err := certs.Follow(c.TLSFiles(), w.c.Log)
	if err != nil {
		w.t.Fatal(err)
	}
	return w.configured(func(c *Config) { c.TLS = follower.Server(Protocols()...) })
}

func newFolder(t *testing.T) certs.Folder {
	t.Helper()
	f := certs.Folder{Dir: t.TempDir()}
	if _, err := f.Init(10); err != nil {
		t.Fatal(err)
	}
	return f
}

// clientOf returns what a client needs that trusts a folder; with certificate, it has one.
func clientOf(t *testing.T, folder certs.Folder, certificate bool) *tls.Config {
	t.Helper()
	c := config.FrontendClient{CAFile: folder.Dir + "/ca.pem"}
	if certificate {
		made, err := folder.Issue(certs.Request{Name: "client", Client: true, Days: 1})
		if err != nil {
			t.Fatal(err)
		}
		c.CertFile, c.KeyFile = made.CertFile, made.KeyFile
	}
	f, err := certs.Follow(c.TLSFiles(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return f.TLS()
}

func (f *front) over(secure *tls.Config, http2 bool) {
	f.client.Transport = &http.Transport{TLSClientConfig: secure, ForceAttemptHTTP2: http2}
}

// With a certificate, the frontend speaks both versions of HTTP. In both, a stream arrives,
// and a client that leaves frees its worker.
func TestHTTPS(t *testing.T) {
	for _, tc := range []struct {
		name  string
		http2 bool
		major int
	}{{"HTTP/1.1", false, 1}, {"HTTP/2", true, 2}} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			goOn := make(chan struct{})
			fk := w.fake("worker-1", say("abcdef", hold(3, goOn)))
			folder := newFolder(t)
			f := w.secured(folder, false)
			f.over(clientOf(t, folder, false), tc.http2)
			f.waitModel(1)
			if !strings.HasPrefix(f.URL(), "https://127.0.0.1:") {
				t.Errorf("its address is %s", f.URL())
			}
			begin := func(ctx context.Context) *http.Response {
				resp, err := f.tryPost(ctx, "/v1/completions", textBody(body{"stream": true}))
				if err != nil {
					t.Fatal(err)
				}
				if resp.StatusCode != 200 || resp.ProtoMajor != tc.major {
					t.Fatalf("status %d over HTTP/%d, want HTTP/%d", resp.StatusCode, resp.ProtoMajor, tc.major)
				}
				return resp
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			left := begin(ctx)
			defer left.Body.Close()
			if _, err := bufio.NewReader(left.Body).ReadString('\n'); err != nil {
				t.Fatal(err)
			}
			cancel()
			patience.Until(t, "the worker is free", func() bool { return fk.running.Load() == 0 && fk.cancelled.Load() == 1 })
			close(goOn)
			resp := begin(t.Context())
			defer resp.Body.Close()
			text, err := io.ReadAll(resp.Body)
			if err != nil || !strings.HasSuffix(string(text), "data: [DONE]\n\n") || !strings.Contains(string(text), `"text":"f"`) {
				t.Errorf("%v: %s", err, text)
			}
			patience.Until(t, "the request is over", func() bool { return f.gate.inFlight() == 0 })
		})
	}
}

// Nobody gets in over plain HTTP, without trusting the certificate, or without one where
// clients are asked for theirs.
func TestHTTPSLetsNobodyElseIn(t *testing.T) {
	w := newWorld(t)
	folder, other := newFolder(t), newFolder(t)
	f := w.secured(folder, true)
	known := clientOf(t, folder, true)
	foreign := clientOf(t, other, true)
	foreign.RootCAs = known.RootCAs
	for name, tc := range map[string]struct {
		secure *tls.Config
		url    string
		ok     bool
	}{
		"known":                     {known, f.URL(), true},
		"plain":                     {known, strings.Replace(f.URL(), "https:", "http:", 1), false},
		"without a certificate":     {clientOf(t, folder, false), f.URL(), false},
		"with that of another":      {foreign, f.URL(), false},
		"another trusted authority": {clientOf(t, other, false), f.URL(), false},
	} {
		for _, http2 := range []bool{false, true} {
			tr := &http.Transport{TLSClientConfig: tc.secure.Clone(), ForceAttemptHTTP2: http2}
			resp, err := (&http.Client{Transport: tr}).Get(tc.url + "/live")
			if err == nil {
				_ = resp.Body.Close()
			}
			if ok := err == nil && resp.StatusCode == 200; ok != tc.ok {
				t.Errorf("%s: %v %v", name, resp, err)
			}
			tr.CloseIdleConnections()
		}
	}
}

// A certificate that is replaced while the frontend runs is that of new connections.
func TestHTTPSFollowsItsFiles(t *testing.T) {
	w := newWorld(t)
	folder := newFolder(t)
	f := w.secured(folder, false)
	serial := func() string {
		f.over(clientOf(t, folder, false), true)
		defer f.client.CloseIdleConnections()
		resp, err := f.client.Get(f.URL() + "/live")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		return resp.TLS.PeerCertificates[0].SerialNumber.String()
	}
	before := serial()
	if _, err := folder.Issue(certs.Request{Name: "server", Renew: true, Days: 1}); err != nil {
		t.Fatal(err)
	}
	patience.Until(t, "the new certificate is used", func() bool { return serial() != before })
	if err := os.Remove(folder.Dir + "/server-key.pem"); err != nil {
		t.Fatal(err)
	}
	if after := serial(); after == before {
		t.Error("the old certificate is back")
	}
}

// Without an API key, a verified client certificate shows what loopback shows.
func TestCertifiedClientsAreInsiders(t *testing.T) {
	r := httptest.NewRequest(http.MethodGet, "https://gpu-7/metrics", http.NoBody)
	r.TLS = &tls.ConnectionState{}
	if Insider(r, "") {
		t.Error("TLS alone makes an insider")
	}
	r.TLS.VerifiedChains = append(r.TLS.VerifiedChains, nil)
	if !Insider(r, "") {
		t.Error("a verified client is none")
	}
	if Insider(r, "key") {
		t.Error("a certificate stands for a key")
	}
}
