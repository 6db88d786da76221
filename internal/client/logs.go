package client

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/protocol"
)

// ErrNoLogs is returned when a node has no agent that sends logs.
var ErrNoLogs = errors.New("no agent sends logs")

// LogOptions select a part of a log.
type LogOptions struct {
	Worker string // empty: the agent's own log
	Tail   int    // lines to begin with; 0 or less: all, up to 1 MiB
	Follow bool   // keep delivering what is appended
}

// Logs streams a log from the agent of a node. It calls write with the pieces in order,
// the existing content first. Without Follow it returns at the end of the log. With
// Follow it returns when ctx ends or the agent is gone.
func (c *Cluster) Logs(ctx context.Context, v View, nodeID string, o LogOptions, write func([]byte) error) error {
	addr := v.agentAddr(nodeID, cluster.EndpointLogs)
	if addr == "" {
		return fmt.Errorf("%w on node %s", ErrNoLogs, v.NodeName(nodeID))
	}
	req := protocol.LogRequest{Worker: o.Worker, Tail: o.Tail, Follow: o.Follow}
	stream, err := c.plane.Call(ctx, addr, requestID("logs"), nil, req)
	if err != nil {
		return fmt.Errorf("read log from node %s: %w", v.NodeName(nodeID), err)
	}
	defer stream.Close()
	for {
		var chunk protocol.LogChunk
		switch err := stream.Recv(ctx, &chunk); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("read log from node %s: %w", v.NodeName(nodeID), err)
		}
		if err := write(chunk.Data); err != nil {
			return err
		}
	}
}
