package wire

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/dynctl/dynctl/internal/external"
	"github.com/dynctl/dynctl/internal/protocol"
)

// Path returns where a client's body goes.
func Path(api protocol.API) (string, error) {
	switch api {
	case protocol.APIChat, protocol.APICompletions:
		return "/v1/" + string(api), nil
	}
	return "", Invalid("the server has no endpoint %q", tidy(string(api), ""))
}

// RequestID is the header by which both legs of an exchange are known.
func RequestID(r *external.Request) http.Header {
	h := http.Header{}
	if r.RequestID != "" {
		h.Set("X-Request-Id", r.RequestID)
	}
	return h
}

// Streams reports whether the client of a body asked for a stream, and for usage in it.
func Streams(b *Body) (stream, usage bool) {
	if !IsTrue(b.Get("stream")) {
		return false, false
	}
	var options struct {
		Usage bool `json:"include_usage"`
	}
	return true, json.Unmarshal(b.Get("stream_options"), &options) == nil && options.Usage
}

// askUsage has a stream end with usage.
func askUsage(b *Body) error {
	options := &Body{}
	if raw := b.Get("stream_options"); !IsNull(raw) {
		var err error
		if options, err = ParseBody(raw); err != nil {
			return Invalid("stream_options: not an object")
		}
	}
	if err := options.Single("include_usage"); err != nil {
		return err
	}
	options.Set("include_usage", json.RawMessage("true"))
	b.Set("stream_options", options.Bytes())
	return nil
}

// PassOn sends a client's body and emits the answer in the server's own bytes: chunks of a
// stream with an output each and one without Raw at the end, or one object. Members by which
// servers talk to each other are removed.
func (c *Client) PassOn(ctx context.Context, path string, header http.Header, b *Body, emit func(protocol.EngineOutput) error) error {
	stream, usage := Streams(b)
	if !stream {
		answer, err := c.Compute(ctx, path, header, b.Bytes())
		if err != nil {
			return err
		}
		return c.passWhole(path, answer, emit)
	}
	if !usage {
		b = b.Clone()
		if err := askUsage(b); err != nil {
			return err
		}
	}
	p := passer{emit: emit, hideUsage: !usage}
	marked, err := c.Stream(ctx, path, header, b.Bytes(), func(data []byte) error {
		if err := c.Failure(path, data); err != nil {
			return err
		}
		return p.chunk(data)
	})
	switch {
	case err != nil:
		return err
	case p.finish == "":
		return Unavailable("%s: the stream ended before the answer", path)
	case !marked && p.usage == nil:
		return Unavailable("%s: the stream ended before its end mark", path)
	}
	return emit(protocol.EngineOutput{Finish: p.finish, Usage: p.usage.Protocol()})
}

// figures are what is read of an answer that is passed on.
type figures struct {
	Choices []struct {
		Reason *string `json:"finish_reason"`
	} `json:"choices"`
	Usage *Usage `json:"usage"`
}

func (f *figures) finish() (protocol.FinishReason, error) {
	for _, choice := range f.Choices {
		if choice.Reason != nil && *choice.Reason != "" {
			return Finish(*choice.Reason)
		}
	}
	return "", nil
}

// passer passes on the chunks of one stream.
type passer struct {
	emit      func(protocol.EngineOutput) error
	hideUsage bool // the client did not ask for it
	finish    protocol.FinishReason
	usage     *Usage
}

func (p *passer) chunk(data []byte) error {
	raw, err := visible(data, p.hideUsage)
	if err != nil {
		return err
	}
	var f figures
	if err := json.Unmarshal(data, &f); err != nil {
		return Unavailable("a chunk of the answer: %v", err)
	}
	if f.Usage != nil {
		p.usage = f.Usage
		if p.hideUsage && len(f.Choices) == 0 {
			return nil
		}
	}
	finish, err := f.finish()
	if err != nil {
		return err
	}
	if finish != "" {
		p.finish = finish
	}
	return p.emit(protocol.EngineOutput{Raw: raw})
}

func (c *Client) passWhole(path string, answer []byte, emit func(protocol.EngineOutput) error) error {
	if err := c.Failure(path, answer); err != nil {
		return err
	}
	out, err := Whole(answer)
	if err != nil {
		return err
	}
	return emit(out)
}

// Whole returns the answer that is one object.
func Whole(answer []byte) (protocol.EngineOutput, error) {
	raw, err := visible(answer, false)
	if err != nil {
		return protocol.EngineOutput{}, err
	}
	var f figures
	if err := json.Unmarshal(answer, &f); err != nil {
		return protocol.EngineOutput{}, Unavailable("the answer: %v", err)
	}
	finish, err := f.finish()
	switch {
	case err != nil:
		return protocol.EngineOutput{}, err
	case finish == "":
		return protocol.EngineOutput{}, Unavailable("the answer does not say why it ended")
	}
	return protocol.EngineOutput{Raw: raw, Finish: finish, Usage: f.Usage.Protocol()}, nil
}

// visible returns an answer without the members that servers have for each other, and without usage
// if that is to be hidden: servers that are asked for it have a null in each chunk but the last.
// If it has none, it is returned as it is.
func visible(answer []byte, hideUsage bool) (json.RawMessage, error) {
	b, err := ParseBody(answer)
	if err != nil {
		return nil, Unavailable("the answer is not an object of JSON")
	}
	if !b.Drop(func(name string) bool { return external.Controls(name) || hideUsage && name == "usage" }) {
		return answer, nil
	}
	return b.Bytes(), nil
}
