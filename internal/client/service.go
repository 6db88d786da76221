package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/credentials"
	"github.com/dynctl/dynctl/internal/handshake"
	"github.com/dynctl/dynctl/internal/requestplane"
)

// ErrServiceRefused is returned for a service that a node does not take.
var ErrServiceRefused = errors.New("refused")

// AttachToken returns the token with which programs attach services at the status server of
// a node.
func AttachToken(secret credentials.Secret) string {
	return handshake.NewKey(secret.Key(requestplane.KeyPurpose)).Token(cluster.AttachPurpose)
}

// Hold attaches a service to a node until ctx ends, and calls each with its state, at first
// and whenever that changes. It returns an error when the node refuses or is gone.
func (c *Cluster) Hold(ctx context.Context, v View, nodeID string, s cluster.Service, each func(cluster.ServiceState) error) error {
	addr := v.agentAddr(nodeID, cluster.EndpointAttach)
	if addr == "" {
		return fmt.Errorf("node %s takes no services", v.NodeName(nodeID))
	}
	stream, err := c.plane.Call(ctx, addr, requestID("attach"), nil, s)
	if err != nil {
		return fmt.Errorf("attach to node %s: %w", v.NodeName(nodeID), err)
	}
	defer stream.Close()
	for {
		var st cluster.ServiceState
		var said *requestplane.RemoteError
		switch err := stream.Recv(ctx, &st); {
		case errors.As(err, &said) && said.Kind == requestplane.KindInvalidArgument:
			return fmt.Errorf("%w by node %s: %s", ErrServiceRefused, v.NodeName(nodeID), said.Message)
		case errors.Is(err, io.EOF):
			return errors.New("the node let go of it")
		case err != nil:
			return err
		}
		if err := each(st); err != nil {
			return err
		}
	}
}

// agentAddr returns where the agent of a node serves an endpoint, empty if it does not.
func (v View) agentAddr(nodeID, endpoint string) string {
	for _, inst := range v.Instances {
		if inst.Component == cluster.ComponentAgent && inst.Endpoint == endpoint && inst.Node == nodeID {
			return inst.Transport.Address()
		}
	}
	return ""
}

// NodeHere returns a node that runs on this machine.
func (v View) NodeHere() (cluster.Node, bool) {
	host, err := os.Hostname() // as nodes publish it
	for _, n := range v.Nodes {
		if err == nil && n.Host == host {
			return n, true
		}
	}
	return cluster.Node{}, false
}
