package vllm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/dynctl/dynctl/internal/external"
	"github.com/dynctl/dynctl/internal/external/wire"
	"github.com/dynctl/dynctl/internal/protocol"
)

// maxEmbedded bounds what a server tells of the embeddings of one item, in bytes.
const maxEmbedded = 1 << 20

// mediaOptions are the members of a body that change what media become: both servers need them, and
// so does the name of the embeddings.
var mediaOptions = []string{"mm_processor_kwargs", "media_io_kwargs"}

// Items implements external.Encoder.
func (e *Engine) Items(r *external.Request) (items []external.MediaItem, err error) {
	if r.Body == nil || r.API != protocol.APIChat {
		return nil, nil
	}
	b, err := wire.ClientBody(r.Body, r.Model)
	if err != nil {
		return nil, err
	}
	err = eachItem(b, func(m wire.MediaPart, key [sha256.Size]byte) (bool, error) {
		if !slices.ContainsFunc(items, func(o external.MediaItem) bool { return o.Key == key }) {
			items = append(items, external.MediaItem{Key: key, Body: itemBody(b, m, key)})
		}
		return false, nil
	})
	return items, err
}

// eachItem calls each with the media of a body and their keys, and changes the body as it says.
func eachItem(b *wire.Body, each func(wire.MediaPart, [sha256.Size]byte) (changed bool, err error)) error {
	if err := b.Single(append([]string{"messages"}, mediaOptions...)...); err != nil {
		return err
	}
	messages, err := wire.EachMedia(b.Get("messages"), func(m wire.MediaPart) (bool, error) {
		h := sha256.New()
		_, _ = fmt.Fprintf(h, "%s\n%s", m.Kind, m.Content()) // never fails
		for _, name := range mediaOptions {
			_, _ = fmt.Fprintf(h, "\n%s", b.Get(name))
		}
		return each(m, [sha256.Size]byte(h.Sum(nil)))
	})
	if err == nil && messages != nil {
		b.Set("messages", messages)
	}
	return err
}

// label gives what is in a part a name of its own, under which both servers know the embeddings
// without looking at the content. What an address leads to has none: it may become something else,
// and vLLM names it by its content then.
func label(m wire.MediaPart, key [sha256.Size]byte) bool {
	if !m.Inline() {
		return false
	}
	m.Set("uuid", wire.Text(hex.EncodeToString(key[:])))
	return true
}

// itemBody returns the request that has one item encoded and nothing generated but a token that
// nobody reads.
func itemBody(b *wire.Body, m wire.MediaPart, key [sha256.Size]byte) []byte {
	part := &wire.Body{}
	part.Set("type", wire.Text(m.Kind))
	part.Set(m.Kind, m.Content())
	label(wire.MediaPart{Body: part, Kind: m.Kind}, key)
	message := &wire.Body{}
	message.Set("role", wire.Text("user"))
	message.Set("content", slices.Concat([]byte{'['}, part.Bytes(), []byte{']'}))
	ask := &wire.Body{}
	ask.Set("messages", slices.Concat([]byte{'['}, message.Bytes(), []byte{']'}))
	ask.Set("max_tokens", json.RawMessage("1"))
	ask.Set("stream", json.RawMessage("false"))
	for _, option := range mediaOptions {
		if raw := b.Get(option); raw != nil {
			ask.Set(option, raw)
		}
	}
	return ask.Bytes()
}

// Encode implements external.Encoder.
func (e *Engine) Encode(ctx context.Context, r *external.Request) (json.RawMessage, error) {
	told, err := e.encode(ctx, r)
	return told, wire.Remote(ctx, err)
}

func (e *Engine) encode(ctx context.Context, r *external.Request) (json.RawMessage, error) {
	const path = "/v1/chat/completions"
	b, err := wire.ClientBody(r.Body, r.Model)
	if err != nil {
		return nil, err
	}
	answer, err := e.client.Compute(ctx, path, wire.RequestID(r), b.Bytes())
	if err != nil {
		return nil, err
	}
	if err := e.client.Failure(path, answer); err != nil {
		return nil, err
	}
	var reply struct {
		Params json.RawMessage `json:"ec_transfer_params"`
	}
	if err := json.Unmarshal(answer, &reply); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if wire.IsNull(reply.Params) { // servers with a common store tell nothing
		return nil, nil
	}
	if len(reply.Params) > maxEmbedded {
		return nil, wire.Unavailable("ec_transfer_params: longer than %d bytes", maxEmbedded)
	}
	if _, err := wire.ParseBody(reply.Params); err != nil {
		return nil, wire.Unavailable("ec_transfer_params: not an object")
	}
	return reply.Params, nil
}

// embedded changes a body for the server that has the prompt: what other servers told of the
// embeddings of its media, and the names of these.
func embedded(b *wire.Body, told []json.RawMessage) error {
	if told == nil {
		return nil
	}
	if err := eachItem(b, func(m wire.MediaPart, key [sha256.Size]byte) (bool, error) { return label(m, key), nil }); err != nil {
		return err
	}
	all, size := &wire.Body{}, 0
	for _, one := range told {
		if one == nil {
			continue
		}
		if size += len(one); size > maxHandoff {
			return wire.Unavailable("ec_transfer_params: longer than %d bytes together", maxHandoff)
		}
		if err := all.Add(one); err != nil {
			return wire.Unavailable("ec_transfer_params: %v", err)
		}
	}
	if raw := all.Bytes(); len(raw) > len("{}") {
		b.Set("ec_transfer_params", raw)
	}
	return nil
}
