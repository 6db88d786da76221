package agent

import (
	"context"
	"fmt"

	"github.com/dynctl/dynctl/internal/attach"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/handshake"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/undo"
)

// planeKey is what the programs of the cluster prove to each other on the request plane.
func (a *Agent) planeKey() handshake.Key {
	return handshake.NewKey(a.secret.Key(requestplane.KeyPurpose))
}

// startAttached lets services behind URLs join through this node.
func (a *Agent) startAttached(ctx context.Context, back *undo.Stack) error {
	a.attached = attach.New(attach.Config{Runtime: a.plumb, Bus: a.stores.bus, Log: a.log})
	back.Push("detach services", a.attached.Close)
	if _, err := a.drt.Serve(ctx, cluster.ComponentAgent, cluster.EndpointAttach, a.attached.Hold); err != nil {
		return fmt.Errorf("serve attach: %w", err)
	}
	return nil
}
