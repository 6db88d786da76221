package frontend

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/protocol"
)

func TestTenants(t *testing.T) {
	one, several := []string{"k1"}, []string{"k1", "k2"}
	for _, tc := range []struct {
		name    string
		keys    []string
		proxies []string
		remote  string
		header  []string // of X-Forwarded-For
		key     string
		want    string
	}{
		{"address", nil, nil, "192.0.2.7:1234", nil, "", "address:192.0.2.7"},
		{"one key is everybody's", one, nil, "192.0.2.7:1234", nil, "k1", "address:192.0.2.7"},
		{"a claim of a stranger", nil, nil, "192.0.2.7:1234", []string{"10.1.1.1"}, "", "address:192.0.2.7"},
		{"a trusted proxy", nil, []string{"192.0.2.0/24"}, "192.0.2.7:1234", []string{"10.1.1.1"}, "", "address:10.1.1.1"},
		{"a trusted address", nil, []string{"192.0.2.7"}, "192.0.2.7:1234", []string{"10.1.1.1"}, "", "address:10.1.1.1"},
		{"only the last address is the proxy's word", nil, []string{"192.0.2.7"}, "192.0.2.7:1234", []string{"1.1.1.1, 10.1.1.1"}, "", "address:10.1.1.1"},
		{"two proxies", nil, []string{"192.0.2.0/24"}, "192.0.2.7:1234", []string{"1.1.1.1", "10.1.1.1, 192.0.2.8"}, "", "address:10.1.1.1"},
		{"a proxy that does not say", nil, []string{"192.0.2.0/24"}, "192.0.2.7:1234", []string{"unknown"}, "", "address:192.0.2.7"},
		{"a proxy alone", nil, []string{"192.0.2.0/24"}, "192.0.2.7:1234", nil, "", "address:192.0.2.7"},
		{"a network of IPv6", nil, nil, "[2001:db8:1:2:3:4:5:6]:1234", nil, "", "address:2001:db8:1:2::/64"},
		{"IPv4 in IPv6", nil, []string{"192.0.2.7"}, "[::ffff:192.0.2.7]:1234", []string{"10.1.1.1"}, "", "address:10.1.1.1"},
		{"no address", nil, nil, "@", nil, "", "address:unknown"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ts, err := newTenants(tc.keys, tc.proxies)
			if err != nil {
				t.Fatal(err)
			}
			r := httptest.NewRequest(http.MethodPost, "/v1/completions", nil)
			r.RemoteAddr = tc.remote
			for _, h := range tc.header {
				r.Header.Add("X-Forwarded-For", h)
			}
			r.Header.Set("Authorization", "Bearer "+tc.key)
			if got := ts.of(r); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
	ts, _ := newTenants(several, nil)
	names := map[string]bool{}
	for _, key := range several {
		for _, remote := range []string{"192.0.2.7:1", "192.0.2.8:2"} {
			r := httptest.NewRequest(http.MethodPost, "/", nil)
			r.RemoteAddr = remote
			r.Header.Set("Authorization", "bearer  "+key)
			name := ts.of(r)
			if names[name] = true; strings.Contains(name, key) {
				t.Errorf("%q tells the key", name)
			}
		}
	}
	if len(names) != 2 {
		t.Errorf("two keys from two addresses are the tenants %v", names)
	}
	if _, err := newTenants(nil, []string{"10.0.0.0/33"}); err == nil || !strings.Contains(err.Error(), "trusted_proxies") {
		t.Errorf("a bad network: %v", err)
	}
}

func TestSeveralAPIKeys(t *testing.T) {
	w := newWorld(t)
	fk := w.fake("worker-1", say("abc"))
	f := w.configured(func(c *Config) { c.APIKey = "k1, k2" }).waitModel(1)
	for key, want := range map[string]int{"k1": 200, "k2": 200, "k3": 401, "k1, k2": 401, "": 401, ",": 401} {
		resp := f.do("POST", "/v1/completions", strings.NewReader(`{"model":"tiny","prompt":"x"}`), "Authorization", "Bearer "+key)
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("key %q: status %d, want %d", key, resp.StatusCode, want)
		}
	}
	got := fk.got()
	if len(got) != 2 || got[0].Tenant == got[1].Tenant || got[0].Tenant == "" {
		t.Errorf("requests of tenants %+v", got)
	}
}

// forwarded posts a request as a trusted proxy does for a client.
func (f *front) forwarded(ctx context.Context, client, text string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, f.URL()+"/v1/completions", strings.NewReader(text))
	if err != nil {
		return nil, err
	}
	req.Header.Set("X-Forwarded-For", client)
	return f.client.Do(req)
}

// A client that has all the places does not keep another one from the workers; what is
// beyond waits at the frontend, and too much of that is refused with the time to retry.
func TestClientsShareTheWorkers(t *testing.T) {
	w := newWorld(t)
	never := make(chan struct{})
	slow, quick := say("abc", hold(0, never)), say("abc")
	fk := w.fake("worker-1", func(ctx context.Context, req protocol.PreprocessedRequest, send func(protocol.EngineOutput) error) error {
		if strings.Contains(req.Tenant, "10.0.0.1") {
			return slow(ctx, req, send)
		}
		return quick(ctx, req, send)
	})
	f := w.configured(func(c *Config) { c.TrustedProxies = []string{"127.0.0.1"} }, func(f *Frontend) {
		f.admission.limits.Waiting = 100
	}).waitModel(1)
	capacity := aheadOfWorkers * fk.card.Runtime.MaxNumSeqs
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for range 2 {
		wg.Go(func() {
			resp, err := f.forwarded(ctx, "10.0.0.1", `{"model":"tiny","prompt":"x","n":24}`)
			if err == nil {
				resp.Body.Close()
			}
		})
	}
	counts := func() (used, waiting int) {
		f.admission.mu.Lock()
		defer f.admission.mu.Unlock()
		if g := f.admission.gates[testModel]; g != nil {
			return g.Counts()
		}
		return 0, 0
	}
	patience.Until(t, "the places are taken", func() bool {
		used, waiting := counts()
		return used == capacity && waiting == 48-capacity && int(fk.running.Load()) == capacity
	})
	for i := range 5 {
		resp, err := f.forwarded(t.Context(), fmt.Sprintf("10.0.0.%d", 2+i%2), `{"model":"tiny","prompt":"x","n":3}`)
		if err != nil {
			t.Fatal(err)
		}
		wholeAnswer(t, resp)
	}
	// 32 wait of 100: the client may add 36.
	resp, err := f.forwarded(t.Context(), "10.0.0.1", `{"model":"tiny","prompt":"x","n":37}`)
	if err != nil {
		t.Fatal(err)
	}
	if e := failureOf(t, resp); resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") != "5" || e.Error.Type != "rate_limit_error" {
		t.Errorf("status %d, headers %v, %+v", resp.StatusCode, resp.Header, e)
	}
	cancel()
	wg.Wait()
	patience.Until(t, "all places are free", func() bool { used, waiting := counts(); return used == 0 && waiting == 0 })
}
