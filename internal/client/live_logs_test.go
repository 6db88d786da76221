package client

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
)

// A live source follows the log of a worker on its node, and that of a node's agent.
func TestLiveLog(t *testing.T) {
	c := lab(t)
	id := grant(t, c, time.Minute)
	asked := make(chan protocol.LogRequest, 1)
	plane(t, c, cluster.ComponentAgent, cluster.EndpointLogs, "n1", "node-1", id, func(ctx context.Context, r *requestplane.Request, send func(any) error) error {
		var req protocol.LogRequest
		if err := r.Decode(&req); err != nil {
			return err
		}
		asked <- req
		if err := send(protocol.LogChunk{Data: []byte("one\n")}); err != nil {
			return err
		}
		<-ctx.Done()
		return nil
	})
	put(t, c, cluster.NodeKey("n1"), cluster.Node{ID: "n1", Name: "node-1", Namespace: c.Namespace}, id)
	assign(t, c, cluster.Assignment{Name: "worker-1", Role: cluster.RoleDecode, Node: "n1", Desire: cluster.DesireRun})
	assign(t, c, cluster.Assignment{Name: "worker-2", Role: cluster.RoleDecode, Desire: cluster.DesireRun})
	l := live(t, c, LiveOptions{})

	for name, worker := range map[string]string{"worker-1": "worker-1", "node-1": "", "n1": ""} {
		ctx, cancel := context.WithCancel(t.Context())
		var got string
		err := l.Log(ctx, name, 7, func(b []byte) error { got += string(b); cancel(); return nil })
		if !errors.Is(err, context.Canceled) || got != "one\n" {
			t.Errorf("%s: %q %v", name, got, err)
		}
		if req := <-asked; req != (protocol.LogRequest{Worker: worker, Tail: 7, Follow: true}) {
			t.Errorf("%s: asked for %+v", name, req)
		}
	}
	for name, want := range map[string]string{"worker-2": "worker-2 runs on no node", "worker-9": "nothing is called worker-9"} {
		if err := l.Log(t.Context(), name, 7, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
