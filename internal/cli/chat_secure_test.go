package cli

import (
	"log/slog"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/dynctl/dynctl/internal/certs"
	"github.com/dynctl/dynctl/internal/cli/clitest"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/config"
)

// dynctl talks with a frontend over HTTPS that asks for a certificate, and says what to set
// where one side does not trust the other.
func TestChatOverHTTPS(t *testing.T) {
	folder := certs.Folder{Dir: t.TempDir()}
	file := func(name string) string { return filepath.Join(folder.Dir, name) }
	if _, err := folder.Init(1); err != nil {
		t.Fatal(err)
	}
	for _, r := range []certs.Request{{Name: "server", Days: 1}, {Name: "client", Client: true, Days: 1}} {
		if _, err := folder.Issue(r); err != nil {
			t.Fatal(err)
		}
	}
	files := config.Frontend{TLSServer: config.TLSServer{TLSCertFile: file("server.pem"), TLSKeyFile: file("server-key.pem"), TLSClientCAFile: file("ca.pem")}}.TLSFiles()
	follower, err := certs.Follow(files, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	f := clitest.NewFrontend(t, clitest.Says("", "Hi."))
	secure := httptest.NewUnstartedServer(f)
	secure.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	secure.TLS = follower.Server("http/1.1")
	secure.StartTLS()
	defer secure.Close()
	f.URL = secure.URL

	ca, pair := "--frontend-ca-file="+file("ca.pem"), []string{"--frontend-cert-file=" + file("client.pem"), "--frontend-key-file=" + file("client-key.pem")}
	if r := runChat(t, f, options{}, append(pair, ca, "hi")...); r.code != 0 || r.stdout != "Hi.\n" {
		t.Errorf("%+v", r)
	}
	for name, args := range map[string][]string{"an unknown authority": pair, "without a certificate": {ca}} {
		r := runChat(t, f, options{}, append(args, "hi")...)
		if r.code != exit.Unreachable {
			t.Errorf("%s: %+v", name, r)
		}
		clitest.Has(t, name, r.stderr, "no trust between this machine and the frontend", "dynctl config set frontend.ca_file FILE")
	}
	r := runChat(t, f, options{}, "--frontend-ca-file="+file("client-key.pem"), "hi")
	if r.code == 0 {
		t.Errorf("%+v", r)
	}
	clitest.Has(t, "a key for an authority", r.stderr, "cannot use the settings of HTTPS to frontends: frontend.ca_file: no certificate in it")
}
