package requestplane_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/requestplane/requestplanetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMemory(t *testing.T) {
	requestplanetest.Run(t, func(t *testing.T, limits requestplane.Limits) (requestplane.Server, func() requestplane.Client) {
		checkLeaks(t)
		m := requestplane.NewMemory()
		s := m.NewServer(limits, nil)
		t.Cleanup(func() { mustClose(t, s) })
		return s, func() requestplane.Client {
			c := m.NewClient()
			t.Cleanup(func() { mustClose(t, c) })
			return c
		}
	})
}

func TestTCP(t *testing.T) {
	requestplanetest.Run(t, func(t *testing.T, limits requestplane.Limits) (requestplane.Server, func() requestplane.Client) {
		checkLeaks(t)
		s := listen(t, requestplane.ServerConfig{Limits: limits})
		return s, func() requestplane.Client { return newClient(t, requestplane.ClientConfig{}) }
	})
}

// checkLeaks fails the test if goroutines that it started are left at its end.
func checkLeaks(t *testing.T) {
	opt := goleak.IgnoreCurrent()
	t.Cleanup(func() {
		if !t.Failed() {
			goleak.VerifyNone(t, opt)
		}
	})
}

func mustClose(t *testing.T, c interface{ Close() error }) {
	if err := c.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

func listen(t testing.TB, cfg requestplane.ServerConfig) *requestplane.TCPServer {
	t.Helper()
	s, err := requestplane.ListenTCP(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

func newClient(t testing.TB, cfg requestplane.ClientConfig) *requestplane.TCPClient {
	c := requestplane.NewTCPClient(cfg)
	t.Cleanup(func() { c.Close() })
	return c
}
