package requestplane_test

import (
	"testing"
	"time"

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

const patience = 30 * time.Second

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %s", what, patience)
		}
	}
}
