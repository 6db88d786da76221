package frontend

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
)

// Browsers says which requests of web pages a server takes. The zero value takes none but
// those of pages that it serves itself.
type Browsers struct {
	// Origins are those of pages that may use the server, such as https://chat.example.com;
	// "*" stands for all.
	Origins []string
	// Hosts are further names under which clients reach the server on loopback; "*" stands
	// for all.
	Hosts []string
	// Keyed means that requests need an API key, which foreign pages do not have.
	Keyed bool
}

// everything stands for all origins or hosts.
const everything = "*"

// check refuses origins that no browser sends.
func (b Browsers) check() error {
	for _, o := range b.Origins {
		u, err := url.Parse(o)
		if o != everything && (err != nil || u.Scheme == "" || u.Host == "" || o != u.Scheme+"://"+u.Host) {
			return fmt.Errorf("frontend.cors_origins: %q is not an origin, such as https://chat.example.com or http://localhost:3000, nor *", o)
		}
	}
	return nil
}

// Guard keeps foreign web pages away from next. Pages of allowed origins get the headers of
// CORS (https://fetch.spec.whatwg.org). Others are not answered where reading the answer
// would not matter: a browser sends simple POSTs without asking. Requests over loopback must
// name the server as its users do: a page that has its own name resolved to 127.0.0.1 is of
// the same origin to its browser.
func (b Browsers) Guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !b.Keyed && overLoopback(r) && !b.knows(r.Host) {
			invalid("", "This server is not known as '%s'. Name the host in 'frontend.allowed_hosts' if it is.", r.Host).
				withCode("unknown_host").withStatus(http.StatusForbidden).write(w)
			return
		}
		origin := r.Header.Get("Origin")
		if len(b.Origins) > 0 {
			w.Header().Add("Vary", "Origin")
		}
		switch {
		case origin == "" || strings.HasSuffix(origin, "://"+r.Host):
		case slices.Contains(b.Origins, everything), slices.Contains(b.Origins, origin):
			if b.allow(w, r, origin) {
				return
			}
		case !b.Keyed && r.Method != http.MethodGet && r.Method != http.MethodHead && r.Method != http.MethodOptions:
			invalid("", "Web pages of '%s' may not use this server. Name the origin in 'frontend.cors_origins' if they may.", origin).
				withCode("cross_origin").withStatus(http.StatusForbidden).write(w)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// allow sets the headers of CORS. It answers a preflight request and reports that.
func (b Browsers) allow(w http.ResponseWriter, r *http.Request, origin string) (answered bool) {
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", origin)
	h.Set("Access-Control-Expose-Headers", requestIDHeader+", Retry-After, "+routeHeader)
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	h.Set("Access-Control-Allow-Methods", "GET, HEAD, POST")
	if asked := r.Header.Values("Access-Control-Request-Headers"); len(asked) > 0 {
		h["Access-Control-Allow-Headers"] = asked
	}
	if r.Header.Get("Access-Control-Request-Private-Network") == "true" {
		h.Set("Access-Control-Allow-Private-Network", "true")
	}
	h.Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
	return true
}

func overLoopback(r *http.Request) bool {
	addr, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return ok && addr.IP.IsLoopback()
}

// knows reports whether a Host header names this machine. An address does: names are what
// can be made to resolve to another's address.
func (b Browsers) knows(header string) bool {
	host, _, err := net.SplitHostPort(header)
	if err != nil {
		host = strings.Trim(header, "[]")
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if host == "" || host == "localhost" || strings.HasSuffix(host, ".localhost") || net.ParseIP(host) != nil {
		return true
	}
	own, err := os.Hostname()
	if err == nil && strings.EqualFold(host, own) {
		return true
	}
	return slices.ContainsFunc(b.Hosts, func(h string) bool { return h == everything || strings.EqualFold(h, host) })
}
