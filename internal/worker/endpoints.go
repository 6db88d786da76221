package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/worker/role"
)

// serveOperators serves the endpoints by which a worker of any role is looked at and
// looked after. Routers do not use them.
func (t *term) serveOperators(ctx context.Context) error {
	for _, e := range []struct {
		name string
		h    requestplane.Handler
	}{
		{cluster.EndpointStats, t.serveStats},
		{cluster.EndpointModelFiles, t.serveModelFiles},
		{cluster.EndpointClearKV, t.serveClearKV},
		{cluster.EndpointKVEvents, t.serveKVEvents},
		{cluster.EndpointPaths, t.servePaths},
		{cluster.EndpointActivity, t.serveActivity},
	} {
		if _, err := t.bind(ctx, e.name, e.h); err != nil {
			return err
		}
	}
	return nil
}

// PublishCard implements role.Host.
func (t *term) PublishCard(ctx context.Context, bootstrap *cluster.BootstrapEndpoint) error {
	card, _ := t.core.model()
	spec := t.cfg.Assignment.Model
	card.WorkerType = t.role
	card.Runtime.Taints, card.Runtime.Disaggregated = t.cfg.Taints, bootstrap
	card.Runtime.ToolCallParser, card.Runtime.ReasoningParser = spec.ToolParser, spec.ReasoningParser
	t.core.describe(&card)
	body, err := json.Marshal(card)
	if err != nil {
		return fmt.Errorf("encode model card: %w", err)
	}
	key := func(id cluster.InstanceID) string {
		return cluster.CardKey(t.cfg.Namespace, t.role.Component(), t.kind.Endpoint, id)
	}
	value := func(cluster.InstanceID) []byte { return body }
	if t.card != nil {
		err = t.card.Update(ctx, value)
	} else {
		t.card, err = t.drt.PutOwned(ctx, key, value)
	}
	if err != nil {
		return fmt.Errorf("publish model card: %w", err)
	}
	return nil
}

func (t *term) serveStats(_ context.Context, _ *requestplane.Request, send func(any) error) error {
	return send(t.status())
}

// serveClearKV forgets the prefix cache and answers with the number of blocks.
func (t *term) serveClearKV(ctx context.Context, _ *requestplane.Request, send func(any) error) error {
	n, err := t.core.clear(ctx)
	if err != nil {
		return role.RemoteError(err)
	}
	return send(protocol.ClearedKV{Blocks: n})
}

// filePiece is the part of a model file in one item: tokenizers can be
// larger than an item may be.
const filePiece = 4 << 20

// serveModelFiles sends tokenizer and configuration files to frontends, which so
// need no access to the model directory. Large files come in several items.
func (t *term) serveModelFiles(_ context.Context, r *requestplane.Request, send func(any) error) error {
	var req protocol.ModelFilesRequest
	if err := r.Decode(&req); err != nil {
		return err
	}
	_, files := t.core.model()
	for _, name := range req.Names {
		content, ok := files[name]
		if !ok {
			return &requestplane.RemoteError{Kind: requestplane.KindInvalidArgument, Message: fmt.Sprintf("no file %q with this model", name)}
		}
		for piece := range slices.Chunk(content, filePiece) {
			if err := send(protocol.ModelFile{Name: name, Content: piece}); err != nil {
				return err
			}
		}
	}
	return nil
}
