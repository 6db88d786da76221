package frontend

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// tenants identifies the clients that get equal shares of the workers.
type tenants struct {
	byKey   bool // there are several API keys
	proxies []netip.Prefix
}

// newTenants reads the proxies, each an address or a network in CIDR notation.
func newTenants(keys []string, proxies []string) (*tenants, error) {
	t := &tenants{byKey: len(keys) > 1}
	for _, text := range proxies {
		p, err := netip.ParsePrefix(text)
		if a, bad := netip.ParseAddr(text); bad == nil {
			p, err = netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen()), nil
		}
		if err != nil {
			return nil, fmt.Errorf("frontend.trusted_proxies: %q is neither an address, such as 10.0.0.1, nor a network, such as 10.0.0.0/8", text)
		}
		t.proxies = append(t.proxies, p.Masked())
	}
	return t, nil
}

// of returns the tenant of a request: a hash of its API key if there are several keys,
// else the client's address. The hash does not reveal the key. For IPv6 the tenant is the
// /64 network, because one client usually has a whole network.
func (t *tenants) of(r *http.Request) string {
	if t.byKey {
		sum := sha256.Sum256([]byte("tenant " + bearer(r)))
		return "key:" + hex.EncodeToString(sum[:8])
	}
	a := t.client(r)
	if !a.IsValid() {
		return "address:unknown"
	}
	if a.Is6() {
		if p, err := a.WithZone("").Prefix(64); err == nil {
			return "address:" + p.String()
		}
	}
	return "address:" + a.String()
}

// client returns the address that a request comes from: that of the connection or, if
// that is a trusted proxy, the last address in X-Forwarded-For that is not a trusted
// proxy. Earlier addresses are claims of the client and cannot be trusted.
func (t *tenants) client(r *http.Request) netip.Addr {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	at, err := netip.ParseAddr(host)
	if err != nil {
		return netip.Addr{}
	}
	at = at.Unmap()
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for i := len(hops) - 1; i >= 0 && t.trusted(at); i-- {
		next, err := netip.ParseAddr(strings.TrimSpace(hops[i]))
		if err != nil {
			break // the proxy does not say, so it counts as the client
		}
		at = next.Unmap()
	}
	return at
}

func (t *tenants) trusted(a netip.Addr) bool {
	for _, p := range t.proxies {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// apiKeys returns the keys in a setting, where commas separate them.
func apiKeys(setting string) (keys []string) {
	for key := range strings.SplitSeq(setting, ",") {
		if key = strings.TrimSpace(key); key != "" {
			keys = append(keys, key)
		}
	}
	return keys
}

// bearer returns the bearer token of a request, "" if it has none.
func bearer(r *http.Request) string {
	scheme, key, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(key)
}
