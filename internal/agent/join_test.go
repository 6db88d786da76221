package agent

import (
	"errors"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/credentials"
	"github.com/dynctl/dynctl/internal/statedir"
)

// A node that has joined and cannot reach the store says where its address is from.
func TestUnreachedAfterJoining(t *testing.T) {
	cfg := testConfig(t)
	a, err := New(cfg, Options{Version: "test", Log: testLog(t)})
	if err != nil {
		t.Fatal(err)
	}
	refused := errors.New("connection refused")
	s := &stores{addrs: []string{"bucket://mine"}, natsURL: "dynamod://10.0.0.5:4222"}
	if err := s.unreached(a, refused); !errors.Is(err, refused) || strings.Contains(err.Error(), "token") {
		t.Errorf("without a token: %v", err)
	}
	c, err := statedir.Open(cfg.StateDir, cfg.Cluster)
	if err == nil {
		err = c.Join(credentials.Token{Cluster: cfg.Cluster, Namespace: "dynamo", Etcd: s.addrs, NATS: s.natsURL, Secret: credentials.New()})
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := s.unreached(a, refused); !errors.Is(err, refused) || !strings.Contains(err.Error(), "the join token of cluster test says that its state is at dynamod://10.0.0.5:4222: start the dynamod there") {
		t.Errorf("with a token: %v", err)
	}
}
