package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
)

// maxMessage bounds the text of a server's error that is passed on, in bytes.
const maxMessage = 1 << 10

// Unavailable returns an error about a server that cannot answer; another one may.
func Unavailable(format string, args ...any) error {
	return &requestplane.RemoteError{Kind: requestplane.KindUnavailable, Message: fmt.Sprintf(format, args...)}
}

// Invalid returns an error about a request that no server of the engine can answer.
func Invalid(format string, args ...any) error {
	return &requestplane.RemoteError{Kind: requestplane.KindInvalidArgument, Message: fmt.Sprintf(format, args...)}
}

// Unsupported returns an error about an option that the engine does not have.
func Unsupported(engine, field string) error {
	return Invalid("%s: servers of %s cannot do that", field, engine)
}

// Refusal is an answer with a status other than 200.
type Refusal struct {
	Path    string
	Status  int
	Message string // bounded, without the API key
}

func (r *Refusal) Error() string {
	if r.Message == "" {
		return fmt.Sprintf("%s: status %d", r.Path, r.Status)
	}
	return fmt.Sprintf("%s: status %d: %s", r.Path, r.Status, r.Message)
}

// Missing reports whether err says that a server has no such path.
func Missing(err error) bool {
	var r *Refusal
	return errors.As(err, &r) && (r.Status == http.StatusNotFound || r.Status == http.StatusMethodNotAllowed || r.Status == http.StatusNotImplemented)
}

// remote returns a refusal of a request as an error for the request plane. What a server
// thinks of the cluster's key or address is not the client's mistake.
func (r *Refusal) remote() error {
	kind := requestplane.KindUnavailable
	switch s := r.Status; {
	case s == http.StatusUnauthorized || s == http.StatusForbidden || s == http.StatusRequestTimeout || s == http.StatusTooEarly:
	case s == http.StatusNotFound || s == http.StatusMethodNotAllowed:
	case s == http.StatusTooManyRequests || s == http.StatusServiceUnavailable:
		kind = requestplane.KindOverloaded
	case s >= 400 && s < 500:
		kind = requestplane.KindInvalidArgument
	}
	return &requestplane.RemoteError{Kind: kind, Message: r.Error()}
}

// Remote returns err as calls of an Engine return it: a RemoteError, or the cause for which
// ctx ended.
func Remote(ctx context.Context, err error) error {
	var remote *requestplane.RemoteError
	var refusal *Refusal
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.As(err, &remote):
		return err
	case errors.As(err, &refusal):
		return refusal.remote()
	}
	return Unavailable("%v", err)
}

// Generate runs what generates an answer. It returns what emit returns, unchanged, or the error
// of the server as [Remote] has it.
func Generate(ctx context.Context, emit func(protocol.EngineOutput) error, generate func(emit func(protocol.EngineOutput) error) error) error {
	var refused error
	err := generate(func(o protocol.EngineOutput) error {
		refused = emit(o)
		return refused
	})
	if refused != nil {
		return refused
	}
	return Remote(ctx, err)
}

// bare returns an error of the transport without the method and address in front of it.
func bare(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// messageOf returns what an error body of any of the engines says.
func messageOf(body []byte) string {
	var b struct {
		Error   json.RawMessage `json:"error"`
		Message string          `json:"message"`
		Detail  json.RawMessage `json:"detail"` // FastAPI
	}
	if json.Unmarshal(body, &b) != nil {
		return string(body)
	}
	var inner struct {
		Message string `json:"message"`
	}
	var text string
	switch {
	case json.Unmarshal(b.Error, &inner) == nil && inner.Message != "":
		return inner.Message
	case json.Unmarshal(b.Error, &text) == nil && text != "":
		return text
	case b.Message != "":
		return b.Message
	case json.Unmarshal(b.Detail, &text) == nil && text != "":
		return text
	case len(b.Detail) > 0:
		return string(b.Detail)
	}
	return string(body)
}

// tidy makes a server's text fit for logs and answers: bounded, on one line, valid, without
// the key.
func tidy(text, key string) string {
	if key != "" {
		text = strings.ReplaceAll(text, key, "[key]")
	}
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "\ufffd")), " ")
	if len(text) <= maxMessage {
		return text
	}
	cut := maxMessage
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + "…"
}

// WrongMethod reports whether err says that a server has a path, but for another method.
func WrongMethod(err error) bool {
	var r *Refusal
	return errors.As(err, &r) && r.Status == http.StatusMethodNotAllowed
}

// Tidy makes a server's text fit for logs and answers.
func Tidy(text string) string { return tidy(text, "") }
