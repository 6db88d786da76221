package requestplane_test

import (
	"testing"

	"github.com/dynctl/dynctl/internal/proxytest"
)

// proxy stands between a client and a server and can break what it carries.
type proxy struct {
	*proxytest.Proxy
	at func(hostport string) string // the address of a server there; nil for its hostport
}

func newProxy(t *testing.T, target string) *proxy {
	t.Helper()
	return &proxy{Proxy: proxytest.New(t, target)}
}

func (p *proxy) addr() string {
	if p.at != nil {
		return p.at(p.Addr())
	}
	return p.Addr()
}
