package frontend

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestBrowsers(t *testing.T) {
	loopback := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8000}
	other := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 8000}
	const page = "https://page.example"
	for _, tt := range []struct {
		name    string
		b       Browsers
		local   *net.TCPAddr
		method  string
		host    string
		headers string // "Name: value" by line
		want    int    // 299 for what reaches the handler
		allowed string // Access-Control-Allow-Origin
	}{
		{"no browser", Browsers{}, loopback, "POST", "localhost:8000", "", 299, ""},
		{"an address", Browsers{}, loopback, "POST", "[::1]:8000", "", 299, ""},
		{"a foreign address", Browsers{}, loopback, "POST", "192.0.2.1", "", 299, ""},
		{"a name of this machine", Browsers{}, loopback, "GET", "a.LocalHost.:80", "", 299, ""},
		{"another's name", Browsers{}, loopback, "GET", "rebound.example:8000", "", 403, ""},
		{"another's name, with a key", Browsers{Keyed: true}, loopback, "GET", "rebound.example:8000", "", 299, ""},
		{"another's name, not on loopback", Browsers{}, other, "GET", "rebound.example:8000", "", 299, ""},
		{"an allowed name", Browsers{Hosts: []string{"Chat.example"}}, loopback, "GET", "chat.example", "", 299, ""},
		{"any name", Browsers{Hosts: []string{"*"}}, loopback, "GET", "chat.example", "", 299, ""},
		{"its own page", Browsers{}, loopback, "POST", "localhost:8000", "Origin: http://localhost:8000", 299, ""},
		{"a foreign page", Browsers{}, loopback, "POST", "localhost:8000", "Origin: " + page, 403, ""},
		{"a foreign page reads", Browsers{}, loopback, "GET", "localhost:8000", "Origin: " + page, 299, ""},
		{"a foreign page, with a key", Browsers{Keyed: true}, other, "POST", "a.example", "Origin: " + page, 299, ""},
		{"a page without an origin", Browsers{}, loopback, "POST", "localhost:8000", "Origin: null", 403, ""},
		{"a foreign page asks", Browsers{}, loopback, "OPTIONS", "localhost:8000", "Origin: " + page + "\nAccess-Control-Request-Method: POST", 299, ""},
		{"an allowed page", Browsers{Origins: []string{page}}, loopback, "POST", "localhost:8000", "Origin: " + page, 299, page},
		{"an allowed page asks", Browsers{Origins: []string{page}}, loopback, "OPTIONS", "localhost:8000", "Origin: " + page + "\nAccess-Control-Request-Method: POST", 204, page},
		{"options of an allowed page", Browsers{Origins: []string{page}}, loopback, "OPTIONS", "localhost:8000", "Origin: " + page, 299, page},
		{"another page", Browsers{Origins: []string{page}}, loopback, "POST", "localhost:8000", "Origin: https://page.example.org", 403, ""},
		{"any page", Browsers{Origins: []string{"*"}}, loopback, "POST", "localhost:8000", "Origin: null", 299, "null"},
	} {
		h := tt.b.Guard(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(299) }))
		r := httptest.NewRequest(tt.method, "/v1/models", nil)
		r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, tt.local))
		r.Host = tt.host
		for line := range strings.Lines(tt.headers) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
			r.Header.Set(name, value)
		}
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, r)
		if got := rec.Header().Get("Access-Control-Allow-Origin"); rec.Code != tt.want || got != tt.allowed {
			t.Errorf("%s: status %d, allowed %q; want %d, %q", tt.name, rec.Code, got, tt.want, tt.allowed)
		}
	}
}

func TestPreflight(t *testing.T) {
	h := Browsers{Origins: []string{"*"}}.Guard(http.NotFoundHandler())
	r := httptest.NewRequest(http.MethodOptions, "/v1/chat/completions", nil)
	for name, value := range map[string]string{
		"Origin": "http://a", "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,content-type", "Access-Control-Request-Private-Network": "true",
	} {
		r.Header.Set(name, value)
	}
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, r)
	for name, want := range map[string]string{
		"Access-Control-Allow-Origin": "http://a", "Access-Control-Allow-Methods": "GET, HEAD, POST", "Access-Control-Allow-Headers": "authorization,content-type",
		"Access-Control-Allow-Private-Network": "true", "Vary": "Origin", "Access-Control-Max-Age": "600",
	} {
		if got := rec.Header().Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

func TestOrigins(t *testing.T) {
	for origin, ok := range map[string]bool{
		"*": true, "https://a.example": true, "http://localhost:3000": true, "app://obsidian.md": true,
		"a.example": false, "https://a.example/": false, "https://a.example/x": false, "localhost:3000": false, "": false,
	} {
		if err := (Browsers{Origins: []string{origin}}).check(); (err == nil) != ok {
			t.Errorf("%q: %v", origin, err)
		}
	}
}
