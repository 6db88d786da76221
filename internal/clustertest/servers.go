package clustertest

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/embedded"
)

// Servers are an etcd and a NATS server that live as long as a test, may be
// stopped and started again, and keep their addresses and data when they are.
type Servers struct {
	t    testing.TB
	dir  string
	log  *slog.Logger
	etcd *embedded.Etcd
	nats *embedded.NATS

	EtcdAddr string // host:port
	NATSAddr string // host:port
}

// StartServers starts both on free ports.
func StartServers(t testing.TB, log *slog.Logger) *Servers {
	t.Helper()
	return startServers(t, log, true)
}

// startServers starts NATS and, if it is needed, etcd.
func startServers(t testing.TB, log *slog.Logger, etcd bool) *Servers {
	t.Helper()
	s := &Servers{t: t, dir: t.TempDir(), log: log, EtcdAddr: "127.0.0.1:0", NATSAddr: "127.0.0.1:0"}
	if etcd {
		s.StartEtcd()
	}
	s.StartNATS()
	t.Cleanup(func() {
		s.StopNATS()
		s.StopEtcd()
	})
	return s
}

// startTimeout bounds the start of a server.
const startTimeout = time.Minute

// StartEtcd starts etcd, at its former address if it ran before.
func (s *Servers) StartEtcd() {
	s.t.Helper()
	s.etcd = start(s, "etcd", func(ctx context.Context) (*embedded.Etcd, error) {
		return embedded.StartEtcd(ctx, embedded.EtcdOptions{
			Dir: filepath.Join(s.dir, "etcd"), ClientAddr: s.EtcdAddr, PeerAddr: "127.0.0.1:0", Log: s.log, UnsafeNoFsync: true,
		})
	})
	s.EtcdAddr = s.etcd.Endpoint()
}

// start starts a server, once it gets its port: somebody else may have taken the port of
// one that was stopped, for a moment.
func start[S any](s *Servers, name string, server func(context.Context) (S, error)) S {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	for {
		r, err := server(ctx)
		switch {
		case err == nil:
			return r
		case !errors.Is(err, embedded.ErrPortInUse) || ctx.Err() != nil:
			s.t.Fatalf("start %s: %v", name, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// StopEtcd stops etcd.
func (s *Servers) StopEtcd() {
	if s.etcd == nil {
		return
	}
	if err := s.etcd.Close(); err != nil {
		s.t.Errorf("stop etcd: %v", err)
	}
	s.etcd = nil
}

// StartNATS starts NATS, at its former address if it ran before.
func (s *Servers) StartNATS() {
	s.t.Helper()
	s.nats = start(s, "NATS", func(ctx context.Context) (*embedded.NATS, error) {
		return embedded.StartNATS(ctx, embedded.NATSOptions{Dir: filepath.Join(s.dir, "nats"), Addr: s.NATSAddr, Log: s.log})
	})
	s.NATSAddr = strings.TrimPrefix(s.nats.URL(), "nats://")
}

// StopNATS stops NATS.
func (s *Servers) StopNATS() {
	if s.nats == nil {
		return
	}
	if err := s.nats.Close(); err != nil {
		s.t.Errorf("stop NATS: %v", err)
	}
	s.nats = nil
}

// Wipe removes the data of servers that are stopped.
func (s *Servers) Wipe() {
	s.t.Helper()
	for dir, runs := range map[string]bool{"etcd": s.etcd != nil, "nats": s.nats != nil} {
		if runs {
			continue
		}
		if err := os.RemoveAll(filepath.Join(s.dir, dir)); err != nil {
			s.t.Fatal(err)
		}
	}
}

// NATSURL is the address as a URL.
func (s *Servers) NATSURL() string { return "nats://" + s.NATSAddr }
