package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"syscall"
	"time"
)

// maxRedirects bounds how often a server may send elsewhere.
const maxRedirects = 3

// errPrivate is returned for connections to addresses that are not public.
var errPrivate = errors.New("the address is not public")

// client makes the client for web servers.
func (g *Guard) client() *http.Client {
	dialer := &net.Dialer{Timeout: 10 * time.Second}
	if !g.cfg.Private {
		// The address is that of the connection: whatever a name is said to be.
		dialer.ControlContext = func(_ context.Context, _, address string, _ syscall.RawConn) error { return public(address) }
	}
	return &http.Client{
		Transport: &http.Transport{
			DialContext:       dialer.DialContext, // and no proxy of the environment, which would connect for anyone
			ForceAttemptHTTP2: true, TLSHandshakeTimeout: 10 * time.Second, ResponseHeaderTimeout: g.cfg.Timeout,
			MaxResponseHeaderBytes: 64 << 10, MaxIdleConns: 32, IdleConnTimeout: 30 * time.Second,
			// Content is taken as it was sent: what is small compressed may be endless.
			DisableCompression: true,
		},
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			switch {
			case len(via) > maxRedirects:
				return fmt.Errorf("more than %d redirects", maxRedirects)
			case r.URL.Scheme != "https" && !(g.cfg.Private && r.URL.Scheme == "http"):
				return fmt.Errorf("a redirect to the scheme %s", r.URL.Scheme)
			}
			return nil
		},
	}
}

// public returns an error unless an address is one of the public internet.
func public(address string) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: %s", errPrivate, address)
	}
	ip := ap.Addr().Unmap()
	for _, net := range notPublic {
		if net.Contains(ip) {
			return fmt.Errorf("%w: %s", errPrivate, ip)
		}
	}
	if !ip.IsGlobalUnicast() || ip.IsPrivate() || ip.IsLoopback() || ip.IsLinkLocalUnicast() || ip.Zone() != "" {
		return fmt.Errorf("%w: %s", errPrivate, ip)
	}
	return nil
}

// notPublic are the networks of IANA's registries of special-purpose addresses that netip
// takes for global unicast, and those by which IPv6 names an IPv4 address.
var notPublic = prefixes(
	"0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4",
	"64:ff9b::/96", "64:ff9b:1::/48", "100::/64", "2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20", "5f00::/16", "::/96",
)

func prefixes(list ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(list))
	for i, s := range list {
		out[i] = netip.MustParsePrefix(s)
	}
	return out
}

// fetch loads content from a web server.
func (g *Guard) fetch(ctx context.Context, u *url.URL) ([]byte, error) {
	if u.Host == "" || u.User != nil {
		return nil, fmt.Errorf("%w: the URL needs a host and no password", ErrForm)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, ErrForm
	}
	r.Header.Set("Accept", "image/*, application/octet-stream;q=0.8")
	resp, err := g.web.Do(r)
	if err != nil {
		return nil, refuse("fetch %s: %w", u.Redacted(), err)
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode != http.StatusOK:
		return nil, refuse("fetch %s: HTTP status %d", u.Redacted(), resp.StatusCode)
	case resp.Header.Get("Content-Encoding") != "" && resp.Header.Get("Content-Encoding") != "identity":
		return nil, refuse("fetch %s: content encoding %q", u.Redacted(), resp.Header.Get("Content-Encoding"))
	case resp.ContentLength > g.cfg.MaxBytes:
		return nil, g.tooLarge()
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, g.cfg.MaxBytes+1))
	switch {
	case err != nil:
		return nil, refuse("fetch %s: %w", u.Redacted(), err)
	case int64(len(data)) > g.cfg.MaxBytes:
		return nil, g.tooLarge()
	}
	return data, nil
}
