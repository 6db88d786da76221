package frontend

import (
	"context"
	"fmt"
	"slices"

	"github.com/dynctl/dynctl/internal/blockhash"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
)

// sendKVIndex answers an operator's query about the prefix index.
func (f *Frontend) sendKVIndex(_ context.Context, r *requestplane.Request, send func(any) error) error {
	var req protocol.KVIndexRequest
	if err := r.Decode(&req); err != nil {
		return err
	}
	tokens, chain, err := f.chainOf(req)
	if err != nil {
		return &requestplane.RemoteError{Kind: requestplane.KindInvalidArgument, Message: err.Error()}
	}
	out := f.caches.report(chain.Seq)
	out.Frontend, out.PromptTokens, out.BlockSize = f.cfg.Node, tokens, chain.BlockSize
	out.ReplicaSync = f.replicaSync()
	return send(out)
}

// chainOf returns the length and the block hashes of the text of a query, if it has one.
func (f *Frontend) chainOf(req protocol.KVIndexRequest) (tokens int, chain blockhash.Chain, err error) {
	if req.Text == "" {
		return 0, chain, nil
	}
	m := f.registry.find(req.Model)
	if req.Model == "" {
		all := slices.DeleteFunc(f.registry.list(), func(m *servedModel) bool { return m.base != "" })
		if len(all) != 1 {
			return 0, chain, fmt.Errorf("%d models are served: name one", len(all))
		}
		m = all[0]
	}
	if m == nil || !m.ready() {
		return 0, chain, fmt.Errorf("model %q is not served", req.Model)
	}
	if m.text {
		return 0, chain, fmt.Errorf("prompts of model %q are tokenized by its servers alone", m.name)
	}
	ids, err := m.proc.EncodePromptWithin(req.Text, m.card.ContextLength)
	if err != nil {
		return 0, chain, fmt.Errorf("the text: %w", err)
	}
	chain = blockhash.Chain{BlockSize: m.card.BlockSize, Seed: m.card.HashSeed}
	chain.Extend(ids)
	return len(ids), chain, nil
}
