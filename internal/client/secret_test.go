package client

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/credentials"
	"github.com/dynctl/dynctl/internal/handshake"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
)

// Without the secret, or with another one, the stores still tell what they know, and who
// asks a node is told what is missing.
func TestWithoutSecret(t *testing.T) {
	c := lab(t)
	node := grant(t, c, time.Minute)
	put(t, c, cluster.NodeKey("id-1"), cluster.Node{ID: "id-1", Name: "node-1", InstanceID: node, Namespace: c.Namespace}, node)
	asked := false
	plane(t, c, cluster.ComponentAgent, cluster.EndpointLogs, "id-1", "", node, func(context.Context, *requestplane.Request, func(any) error) error {
		asked = true
		return nil
	})
	other := filepath.Join(t.TempDir(), "other")
	if _, err := credentials.Create(other, credentials.New()); err != nil {
		t.Fatal(err)
	}
	s := &servers{t: t, etcdAddr: shared.etcd.Endpoint(), namespace: c.Namespace}
	for _, test := range []struct {
		name, file string
		want       error
		says       string
	}{
		{"none", filepath.Join(t.TempDir(), "none"), ErrNoSecret, "dynctl credentials --join"},
		{"another one", other, handshake.ErrSecret, "does not have this cluster's secret"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := s.connect(func(cfg *config.Dynctl) { cfg.SecretFile = test.file })
			if v := view(t, c); len(v.Nodes) != 1 {
				t.Errorf("%d nodes are seen", len(v.Nodes))
			}
			inst := view(t, c).Instances
			for _, i := range inst {
				_, err := c.plane.Call(t.Context(), i.Transport.Address(), "r", nil, protocol.LogRequest{})
				if !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.says) {
					t.Errorf("asking a node: %v", err)
				}
			}
			if len(inst) != 1 || asked {
				t.Errorf("%d instances, asked = %t", len(inst), asked)
			}
		})
	}
}
