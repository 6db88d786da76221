package trtllm

import (
	"encoding/json"

	"github.com/dynctl/dynctl/internal/external"
	"github.com/dynctl/dynctl/internal/external/wire"
	"github.com/dynctl/dynctl/internal/protocol"
)

// eachChoice replaces the choices of an answer.
func eachChoice(b *wire.Body, change func(*wire.Body)) error {
	var choices []json.RawMessage
	if err := json.Unmarshal(b.Get("choices"), &choices); err != nil {
		return wire.Unavailable("the answer has no choices")
	}
	for i, raw := range choices {
		c, err := wire.ParseBody(raw)
		if err != nil {
			return wire.Unavailable("a choice of the answer is not an object")
		}
		change(c)
		choices[i] = c.Bytes()
	}
	list, err := json.Marshal(choices)
	if err != nil {
		return err
	}
	b.Set("choices", list)
	return nil
}

// withoutParams returns an answer without what its choices tell a generation server.
func withoutParams(answer []byte) ([]byte, error) {
	b, err := wire.ParseBody(answer)
	if err != nil {
		return nil, wire.Unavailable("the answer is not an object of JSON")
	}
	if err := eachChoice(b, func(c *wire.Body) { c.Drop(external.Controls) }); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// asChunks returns the stream that stands for a whole answer: a chunk with all of it, and one
// with usage if the client asked for that.
func asChunks(answer []byte, api protocol.API, usage bool) ([]json.RawMessage, error) {
	b, err := wire.ParseBody(answer)
	if err != nil {
		return nil, err
	}
	counts := b.Get("usage")
	b.Drop(func(name string) bool { return name == "usage" })
	if api == protocol.APIChat {
		b.Set("object", wire.Text("chat.completion.chunk"))
		err = eachChoice(b, func(c *wire.Body) {
			message := c.Get("message")
			c.Drop(func(name string) bool { return name == "message" })
			c.Set("delta", message)
		})
		if err != nil {
			return nil, err
		}
	}
	chunks := []json.RawMessage{b.Bytes()}
	if usage && !wire.IsNull(counts) {
		last := b.Clone()
		last.Set("choices", json.RawMessage("[]"))
		last.Set("usage", counts)
		chunks = append(chunks, last.Bytes())
	}
	return chunks, nil
}
