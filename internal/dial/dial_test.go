package dial

import (
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/embedded"
	"github.com/dynctl/dynctl/internal/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var quiet = slog.New(slog.DiscardHandler)

func TestEtcd(t *testing.T) {
	e, err := embedded.StartEtcd(t.Context(), embedded.EtcdOptions{Dir: t.TempDir(), ClientAddr: "127.0.0.1:0", Log: quiet, UnsafeNoFsync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	nobody := closedPort(t)
	for _, tc := range []struct {
		name       string
		configured []string
		given      []string
		ok         bool
	}{
		{"as configured", []string{e.Endpoint()}, nil, true},
		{"given ones win", []string{nobody}, []string{e.Endpoint()}, true},
		{"nobody there", nil, []string{nobody}, false},
		{"as a URL", []string{"http://" + e.Endpoint()}, nil, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, err := Etcd(config.EtcdClient{Endpoints: tc.configured}, tc.given, Identity{}, quiet)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			if !tc.ok {
				ctx, cancel = context.WithTimeout(t.Context(), 300*time.Millisecond)
			}
			defer cancel()
			if _, err := s.Ping(ctx); (err == nil) != tc.ok {
				t.Errorf("ping: %v", err)
			}
		})
	}
}

// The address of a store says what it is.
func TestStore(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	s, err := Store(Stores{Etcd: config.EtcdClient{Endpoints: []string{closedPort(t)}}}, []string{config.SchemeFile + dir}, Identity{}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if f, ok := s.(*store.File); !ok || f.Dir() != dir {
		t.Errorf("a directory: got %T", s)
	}
	if _, err := s.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	e, err := Store(Stores{}, []string{closedPort(t)}, Identity{}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if _, ok := e.(*store.Etcd); !ok {
		t.Errorf("host and port: got %T", e)
	}
}

func TestEtcdRefusesBadSettings(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing.pem")
	for name, c := range map[string]config.EtcdClient{
		"no endpoints":     {},
		"no such CA":       {Endpoints: []string{"127.0.0.1:1"}, CAFile: missing},
		"no such key pair": {Endpoints: []string{"127.0.0.1:1"}, CertFile: missing, KeyFile: missing},
		"not PEM":          {Endpoints: []string{"127.0.0.1:1"}, CAFile: "-----BEGIN CERTIFICATE-----\nx\n"},
	} {
		if s, err := Etcd(c, nil, Identity{}, quiet); err == nil {
			s.Close()
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestNATS(t *testing.T) {
	n, err := embedded.StartNATS(t.Context(), embedded.NATSOptions{Dir: t.TempDir(), Addr: "127.0.0.1:0", Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	nobody := "nats://" + closedPort(t)
	for _, tc := range []struct {
		name, configured, given string
		ok                      bool
	}{
		{"as configured", n.URL(), "", true},
		{"given one wins", nobody, n.URL(), true},
		// It connects in the background: a server that comes later is found.
		{"nobody there", nobody, "", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bus, err := NATS(config.NATSClient{URL: tc.configured}, tc.given, "test", Identity{}, quiet)
			if err != nil {
				t.Fatal(err)
			}
			defer bus.Close()
			deadline := time.Now().Add(10 * time.Second)
			for tc.ok && !bus.Connected() && time.Now().Before(deadline) {
				time.Sleep(time.Millisecond)
			}
			if bus.Connected() != tc.ok {
				t.Errorf("connected: %t", bus.Connected())
			}
		})
	}
	for name, c := range map[string]config.NATSClient{
		"no such credentials": {URL: n.URL(), CredsFile: filepath.Join(t.TempDir(), "missing.creds")},
		"no URL":              {},
	} {
		bus, err := NATS(c, "", "test", Identity{}, quiet)
		if err == nil {
			_ = bus.Close()
			t.Errorf("%s: accepted", name)
		} else if !strings.Contains(err.Error(), "connect to NATS") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// closedPort is an address where nobody listens.
func closedPort(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}
