package outside

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
)

// Service is a program behind a URL. It answers each POST with JSON: one document with
// Content-Type application/json, or lines with application/x-ndjson, in the form in which
// the http request plane answers: {"item":...} for each item, and {"end":true} or
// {"error":{"kind":...,"message":...}} at the end. Empty lines mean nothing.
type Service struct {
	url string
	// Ready is asked with GET and answers with a status below 300; empty: it is enough that
	// the service accepts connections.
	ready string
	http  *http.Client
	limit int // bytes of a line, and of a document
}

const (
	typeJSON = "application/json"
	// maxReason is how much of an error text is kept, in bytes.
	maxReason = 1 << 10
)

// NewService returns the service at a URL. ready may be empty.
func NewService(at, ready string) (*Service, error) {
	for _, text := range []string{at, ready} {
		u, err := url.Parse(text)
		switch {
		case text == "" && at != "":
		case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
			return nil, fmt.Errorf("%q is no URL of a service: it begins with http:// or https:// and has a host", text)
		case u.User != nil:
			return nil, errors.New("a URL with a password is not taken: it would be shown to everybody")
		}
	}
	t := &http.Transport{
		DialContext: (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 15 * time.Second}).DialContext, TLSHandshakeTimeout: 5 * time.Second,
		MaxIdleConnsPerHost: 64, IdleConnTimeout: 30 * time.Second, MaxResponseHeaderBytes: 64 << 10, DisableCompression: true,
	}
	return &Service{
		url: at, ready: ready, limit: requestplane.DefaultMaxMessage,
		http: &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
	}, nil
}

// Close closes idle connections.
func (s *Service) Close() { s.http.CloseIdleConnections() }

// Check reports why the service cannot take requests, nil if it can.
func (s *Service) Check(ctx context.Context) error {
	if s.ready == "" {
		u, _ := url.Parse(s.url) // was parsed before
		port := u.Port()
		if port == "" {
			port = u.Scheme // net knows the names
		}
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), port))
		if err != nil {
			return err
		}
		return c.Close()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.ready, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := s.http.Do(req)
	if err != nil {
		return unwrapURL(err)
	}
	defer func() { _ = resp.Body.Close() }() // it was only read
	_, _ = io.CopyN(io.Discard, resp.Body, maxReason)
	if resp.StatusCode >= 300 {
		return fmt.Errorf("%s answers %s", s.ready, resp.Status)
	}
	return nil
}

// Handle answers a request with what the service says to it. It is a handler of the request
// plane.
func (s *Service) Handle(ctx context.Context, r *requestplane.Request, send func(any) error) error {
	var body []byte
	if len(r.Body) > 0 {
		var err error
		if body, err = protocol.ToJSON(r.Body); err != nil {
			return err
		}
	}
	return s.ask(ctx, r.ID, r.Headers, body, func(item json.RawMessage) error {
		out, err := protocol.FromJSON(item)
		if err != nil {
			return fmt.Errorf("item of %s: %w", s.url, err)
		}
		return send(requestplane.Raw(out))
	})
}

// generation is what a service that is an engine gets.
type generation struct {
	RequestID   string   `json:"request_id"`
	Text        string   `json:"text"`      // of the prompt, with its special tokens
	TokenIDs    []uint32 `json:"token_ids"` // the same as tokens
	Generated   int      `json:"generated"` // so many of the last tokens were generated before
	MaxTokens   int      `json:"max_tokens"`
	Temperature float32  `json:"temperature"`
	TopP        float32  `json:"top_p"`
	TopK        int      `json:"top_k"`
	Seed        uint64   `json:"seed"`
}

// generated is one item of its answer: tokens, or text that becomes tokens.
type generated struct {
	TokenIDs []uint32 `json:"token_ids"`
	Text     string   `json:"text"`
}

// Generate continues a prompt. It is an [Engine].
func (s *Service) Generate(ctx context.Context, p *Prompt, emit func(tokens ...uint32) error) error {
	body, err := json.Marshal(generation{
		p.ID, p.Tokenizer.Decode(p.Tokens, false), p.Tokens, p.Generated, p.MaxTokens, p.Temperature, p.TopP, p.TopK, p.Seed,
	})
	if err != nil {
		return err
	}
	return s.ask(ctx, p.ID, nil, body, func(item json.RawMessage) error {
		var g generated
		if err := json.Unmarshal(item, &g); err != nil || (len(g.TokenIDs) > 0) == (g.Text != "") {
			return fmt.Errorf("item of %s: it has neither token_ids nor text, or both", s.url)
		}
		if g.Text != "" {
			g.TokenIDs = p.Tokenizer.Encode(g.Text, false)
		}
		for _, id := range g.TokenIDs {
			if int(id) >= p.Tokenizer.VocabSize() {
				return fmt.Errorf("item of %s: the model has no token %d", s.url, id)
			}
		}
		return emit(g.TokenIDs...)
	})
}

// ask posts a body, and calls take for each item of the answer until it fails.
func (s *Service) ask(ctx context.Context, id string, headers map[string]string, body []byte, take func(json.RawMessage) error) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	if len(body) > 0 {
		req.Header.Set("Content-Type", typeJSON)
	}
	req.Header.Set("Accept", typeJSON+", "+requestplane.TypeLines)
	req.Header.Set(requestplane.HeaderID, id)
	for _, name := range requestplane.TraceHeaders {
		if v := headers[name]; v != "" {
			req.Header.Set(name, v)
		}
	}
	resp, err := s.http.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return failed(requestplane.KindUnavailable, "the service does not answer: %v", unwrapURL(err))
	}
	defer func() { _ = resp.Body.Close() }() // it was only read
	if resp.StatusCode >= 300 {
		return refusal(resp)
	}
	return s.read(resp, take)
}

// read reads an answer.
func (s *Service) read(resp *http.Response, take func(json.RawMessage) error) error {
	kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch {
	case resp.StatusCode == http.StatusNoContent:
		return nil
	case err == nil && kind == requestplane.TypeLines:
		return s.readLines(resp.Body, take)
	case err == nil && kind == typeJSON:
		doc, err := io.ReadAll(io.LimitReader(resp.Body, int64(s.limit)+1))
		switch {
		case err != nil:
			return fmt.Errorf("answer of the service: %w", err)
		case len(doc) > s.limit:
			return fmt.Errorf("answer of the service: %w: more than %d bytes", requestplane.ErrTooLarge, s.limit)
		}
		return take(doc)
	}
	return fmt.Errorf("answer of the service: its Content-Type is %q, neither %s nor %s", resp.Header.Get("Content-Type"), typeJSON, requestplane.TypeLines)
}

// kinds are the errors that a service may report; all others are internal.
var kinds = map[requestplane.Kind]bool{
	requestplane.KindInvalidArgument: true, requestplane.KindOverloaded: true, requestplane.KindUnavailable: true, requestplane.KindCancelled: true,
}

func remote(e *requestplane.LineError) error {
	kind := e.Kind
	if !kinds[kind] {
		kind = requestplane.KindInternal
	}
	return failed(kind, "%s", e.Message)
}

func failed(kind requestplane.Kind, format string, args ...any) error {
	return &requestplane.RemoteError{Kind: kind, Message: fmt.Sprintf(format, args...)}
}

func (s *Service) readLines(r io.Reader, take func(json.RawMessage) error) error {
	in := bufio.NewScanner(r)
	in.Buffer(make([]byte, 0, min(4<<10, s.limit)), s.limit)
	for in.Scan() {
		text := bytes.TrimSpace(in.Bytes())
		if len(text) == 0 {
			continue
		}
		var line requestplane.AnswerLine
		switch err := json.Unmarshal(text, &line); {
		case err != nil:
			return fmt.Errorf("answer of the service: a line is no JSON: %w", err)
		case line.Error != nil:
			return remote(line.Error)
		case line.End:
			return nil
		case line.Item == nil:
			return errors.New(`answer of the service: a line has no "item", "end" or "error"`)
		}
		if err := take(line.Item); err != nil {
			return err
		}
	}
	switch err := in.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return fmt.Errorf("answer of the service: %w: a line has more than %d bytes", requestplane.ErrTooLarge, s.limit)
	case err != nil:
		return fmt.Errorf("answer of the service: %w", err)
	}
	return errors.New(`answer of the service: it broke off, without a line {"end":true}`)
}

// refusal is the error for a status that is none of success.
func refusal(resp *http.Response) error {
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxReason)) // what arrived
	var said struct {
		Error *requestplane.LineError `json:"error"`
	}
	if json.Unmarshal(text, &said) == nil && said.Error != nil && kinds[said.Error.Kind] {
		return remote(said.Error)
	}
	kind := requestplane.KindInternal
	switch resp.StatusCode {
	case http.StatusTooManyRequests:
		kind = requestplane.KindOverloaded
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		kind = requestplane.KindUnavailable
	default:
		if resp.StatusCode >= 400 && resp.StatusCode < 500 {
			kind = requestplane.KindInvalidArgument
		}
	}
	return failed(kind, "the service answers %s: %s", resp.Status, bytes.TrimSpace(text))
}

// unwrapURL takes the URL out of an error, which names it already.
func unwrapURL(err error) error {
	var e *url.Error
	if errors.As(err, &e) {
		return e.Err
	}
	return err
}
