package up

import (
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/cli/session"
	"github.com/dynctl/dynctl/internal/config"
)

// A frontend that answers is up, also if it says nothing to this dynctl.
func TestFrontendThatIsBarred(t *testing.T) {
	status := http.StatusUnauthorized
	answer := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
	plain := httptest.NewServer(answer)
	defer plain.Close()
	secure := httptest.NewUnstartedServer(answer)
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	defer secure.Close()
	s := &session.Session{Log: slog.New(slog.DiscardHandler)}
	for url, want := range map[string]barred{plain.URL: needsKey, secure.URL: needsTrust} {
		if why, got := listed(t.Context(), s, url, "tiny"); why != "" || got != want {
			t.Errorf("%s: %q %q, want %q", url, why, got, want)
		}
	}
	status = http.StatusServiceUnavailable
	if why, got := listed(t.Context(), s, plain.URL, "tiny"); !strings.Contains(why, "so far status 503") || got != "" {
		t.Errorf("%q %q", why, got)
	}
}

// The line for curl names the files that HTTPS needs.
func TestCurlOverHTTPS(t *testing.T) {
	s := &session.Session{Config: config.Dynctl{Frontend: config.FrontendClient{CAFile: "/c/ca.pem", CertFile: "-----BEGIN X", KeyFile: "/c/my key.pem"}}}
	want := "curl https://gpu-7:8000/v1/chat/completions -H 'Content-Type: application/json' --cacert /c/ca.pem --key '/c/my key.pem' -d "
	if got := (Result{URL: "https://gpu-7:8000"}).curl(s, false); !strings.HasPrefix(got, want) {
		t.Errorf("got %s", got)
	}
	if got := (Result{URL: "http://gpu-7:8000"}).curl(s, false); strings.Contains(got, "--cacert") {
		t.Errorf("without TLS: %s", got)
	}
}
