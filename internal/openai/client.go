package openai

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// maxBody limits the size in bytes of an answer that is not a stream.
const maxBody = 4 << 20

// Client talks to one frontend.
type Client struct {
	base string // ends without a slash and without /v1
	key  string
	http *http.Client
}

// New returns a client of the frontend at a URL like http://127.0.0.1:8000. A path /v1 at
// its end is accepted. key is the API key; empty for none. secure are the settings of HTTPS;
// nil trusts the authorities of the system. It fails if address is not an HTTP URL.
func New(address, key string, secure *tls.Config) (*Client, error) {
	u, err := url.Parse(address)
	switch {
	case err != nil:
		return nil, err
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, fmt.Errorf("%q is not an address like http://127.0.0.1:8000", address)
	}
	u.RawQuery, u.Fragment = "", ""
	base := strings.TrimSuffix(strings.TrimSuffix(strings.TrimRight(u.String(), "/"), "/v1"), "/")
	return &Client{base: base, key: key, http: &http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: secure}}}, nil
}

// URL returns the address of the frontend, without /v1.
func (c *Client) URL() string { return c.base }

// Limit bounds the connections to the frontend, and keeps as many open between requests; a
// request beyond the bound waits for one. Without it, nothing bounds them and two are kept.
// It counts for requests after it; none may begin meanwhile.
func (c *Client) Limit(connections int) {
	// Connections that a transport has not counted make it panic when they end: those that there are keep theirs.
	before := c.http.Transport.(*http.Transport)
	t := before.Clone()
	t.MaxConnsPerHost, t.MaxIdleConnsPerHost = connections, connections
	c.http.Transport = t
	before.CloseIdleConnections()
}

// Close ends idle connections. Running answers continue.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Model is one served model.
type Model struct {
	ID string `json:"id"`
	// ContextWindow is the maximum number of tokens of prompt and answer together; 0 when
	// not reported.
	ContextWindow int `json:"context_window"`
	// MaxModelLen is the same, as vLLM and SGLang name it.
	MaxModelLen int `json:"max_model_len"`
}

// Models lists the served models, in the frontend's order.
func (c *Client) Models(ctx context.Context) ([]Model, error) {
	var list struct {
		Data []Model `json:"data"`
	}
	if err := c.get(ctx, "/v1/models", &list); err != nil {
		return nil, fmt.Errorf("list models of %s: %w", c.base, err)
	}
	return list.Data, nil
}

// Health asks whether the frontend accepts requests. It returns the status that the
// frontend reports.
func (c *Client) Health(ctx context.Context) (string, error) {
	var health struct {
		Status string `json:"status"`
	}
	if err := c.get(ctx, "/health", &health); err != nil {
		return "", fmt.Errorf("health of %s: %w", c.base, err)
	}
	return health.Status, nil
}

func (c *Client) get(ctx context.Context, path string, v any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+path, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := c.do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxBody)).Decode(v); err != nil {
		return fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	return nil
}

// do sends a request. It returns an answer with status 200, and an error for any other.
func (c *Client) do(req *http.Request) (*http.Response, error) {
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		if cause := context.Cause(req.Context()); cause != nil {
			return nil, cause
		}
		kind := ErrUnreachable
		if distrust(err) {
			kind = ErrCertificate
		}
		return nil, fmt.Errorf("%w: %w", kind, bare(err))
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		return nil, readError(resp)
	}
	return resp, nil
}
