package agent

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/patience"
)

// With an API key the status server tells more than state only to who bears it: neither
// addresses nor names of workers nor figures.
func TestStatusServerAsksForTheKey(t *testing.T) {
	x := startExternal(t)
	cfg := x.config()
	cfg.Frontend.APIKey, cfg.Status.Profiles = config.Secret("s3cret"), true
	a := startAgent(t, cfg)
	ask := func(path, key string) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, a.node.StatusURL+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if key != "" {
			req.Header.Set("Authorization", "Bearer "+key)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(b)
	}
	if err := x.nats.Close(); err != nil { // a reason that names an address
		t.Fatal(err)
	}
	patience.Until(t, "NATS is missed", func() bool {
		code, body := ask("/health", "s3cret")
		return code == http.StatusServiceUnavailable && strings.Contains(body, "nats: not connected to") && strings.Contains(body, `"endpoints":{}`)
	})
	for _, key := range []string{"", "wrong"} {
		code, body := ask("/health", key)
		if code != http.StatusServiceUnavailable || !strings.Contains(body, `"status":"notready"`) || strings.Contains(body, "nats") || strings.Contains(body, "endpoints") {
			t.Errorf("/health with key %q: %d %s", key, code, body)
		}
		if code, body := ask("/live", key); code != http.StatusOK {
			t.Errorf("/live with key %q: %d %s", key, code, body)
		}
		for _, path := range []string{"/metrics", "/debug/pprof/heap"} {
			if code, body := ask(path, key); code != http.StatusUnauthorized || len(body) > 300 {
				t.Errorf("%s with key %q: %d %.300s", path, key, code, body)
			}
		}
	}
	for _, path := range []string{"/metrics", "/debug/pprof/heap"} {
		if code, _ := ask(path, "s3cret"); code != http.StatusOK {
			t.Errorf("%s with the key: %d", path, code)
		}
	}
}

func TestBoundedListener(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := bound(ln, 2)
	accepted := make(chan net.Conn)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := b.Accept()
			if err != nil {
				return
			}
			accepted <- c
		}
	}()
	for range 3 {
		c, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	first, second := <-accepted, <-accepted
	defer second.Close()
	select {
	case <-accepted:
		t.Error("one more than two")
	case <-time.After(20 * time.Millisecond):
	}
	_ = first.Close()
	_ = first.Close() // frees one place, not two
	third := <-accepted
	defer third.Close()
	select { // blocked for a place, and woken by Close
	case <-ended:
		t.Error("the listener has ended")
	default:
	}
	_ = b.Close()
	<-ended
}
