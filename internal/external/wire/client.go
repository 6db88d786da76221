package wire

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

// Bounds of what a server may send, in bytes.
const (
	maxError   = 64 << 10
	maxControl = 16 << 20 // metrics and facts
	maxAnswer  = 64 << 20 // an answer that is no stream
)

const (
	dialTime  = 10 * time.Second
	idleTime  = 90 * time.Second
	idleConns = 256
)

var (
	errSilent   = errors.New("the server sent nothing for too long")
	errRedirect = errors.New("the server redirects, which is not followed: give the address that it redirects to")
)

// Client talks to one server over HTTP. It follows no redirects, keeps connections, and bounds
// answers in size and time. The API key goes into the header Authorization and nowhere else.
type Client struct {
	base   string // without a slash at its end
	host   string // without a port
	port   int
	key    keyFile
	limits Limits
	http   *http.Client
}

// NewClient returns a client of a server. It fails if the address or the file of authorities
// cannot be used.
func NewClient(c Config) (*Client, error) {
	u, err := url.Parse(c.Address())
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
		return nil, fmt.Errorf("the server's address is not like http://gpu-3:8001")
	}
	secure, err := trust(c.Engine.Server.CAFile)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: dialTime, KeepAlive: 30 * time.Second}).DialContext,
		TLSClientConfig:       secure,
		TLSHandshakeTimeout:   dialTime,
		MaxIdleConns:          idleConns,
		MaxIdleConnsPerHost:   idleConns,
		IdleConnTimeout:       idleTime,
		ExpectContinueTimeout: time.Second,
		DisableCompression:    true, // answers are passed on as they are
	}
	base := strings.TrimSuffix(strings.TrimRight((&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String(), "/"), "/v1")
	return &Client{
		base: base, host: u.Hostname(), port: portOf(u), key: keyFile{path: c.Engine.Server.KeyFile}, limits: c.Limits.withDefaults(),
		http: &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
	}, nil
}

func portOf(u *url.URL) int {
	port, err := strconv.Atoi(u.Port())
	switch {
	case err == nil:
		return port
	case u.Scheme == "https":
		return 443
	}
	return 80
}

// trust returns settings of TLS with the authorities in a file beside the system's.
func trust(file string) (*tls.Config, error) {
	if file == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("certificates for the server: %w", err)
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool()
	}
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("certificates for the server: %s has none", file)
	}
	return &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, nil
}

// Host returns the server's host by its address.
func (c *Client) Host() string { return c.host }

// Port returns the server's port by its address.
func (c *Client) Port() int { return c.port }

// Close closes connections that no call uses.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Get asks for a path, within the limit of control calls. An answer with another status than
// 200 is a [Refusal].
func (c *Client) Get(ctx context.Context, path string) ([]byte, error) {
	limited, cancel := context.WithTimeoutCause(ctx, c.limits.Control, fmt.Errorf("%s: no answer within %v", path, c.limits.Control))
	defer cancel()
	resp, err := c.do(limited, http.MethodGet, path, nil, nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return readAll(limited, resp.Body, path, maxControl)
}

// GetJSON asks for a path and reads the JSON of its answer into v.
func (c *Client) GetJSON(ctx context.Context, path string, v any) error {
	b, err := c.Get(ctx, path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// Compute posts a request and returns its whole answer. Beyond ctx it is bounded by the limit
// of silence. header and body may be nil.
func (c *Client) Compute(ctx context.Context, path string, header http.Header, body []byte) ([]byte, error) {
	ctx, awake, cancel := c.watch(ctx, path)
	defer cancel()
	resp, err := c.do(ctx, http.MethodPost, path, header, body)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return readAll(ctx, &heard{resp.Body, awake}, path, maxAnswer)
}

// do sends a request. It returns an answer with status 200; any other is a Refusal.
func (c *Client) do(ctx context.Context, method, path string, header http.Header, body []byte) (*http.Response, error) {
	key, err := c.key.get()
	if err != nil {
		return nil, err
	}
	var reader io.Reader = http.NoBody
	if body != nil {
		reader = bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, reader)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for name, values := range header {
		req.Header[name] = values
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.cause(ctx, path, err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 == 3 {
		return nil, fmt.Errorf("%s: %w", path, errRedirect)
	}
	// What can be read of the text in good time is enough.
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxError))
	return nil, &Refusal{Path: path, Status: resp.StatusCode, Message: tidy(messageOf(text), key)}
}

// cause returns why a call failed: why ctx ended, or else the error.
func (c *Client) cause(ctx context.Context, path string, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return fmt.Errorf("%s: %w", path, bare(err))
}

func readAll(ctx context.Context, r io.Reader, path string, most int64) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, most+1))
	switch cause := context.Cause(ctx); {
	case err != nil && cause != nil:
		return nil, cause
	case err != nil:
		return nil, fmt.Errorf("%s: %w", path, err)
	case int64(len(b)) > most:
		return nil, fmt.Errorf("%s: the answer is longer than %d bytes", path, most)
	}
	return b, nil
}

// watch returns a context that ends when the server was silent for too long. awake says that
// it was heard.
func (c *Client) watch(ctx context.Context, path string) (watched context.Context, awake func(), cancel func()) {
	watched, end := context.WithCancelCause(ctx)
	timer := time.AfterFunc(c.limits.Silence, func() { end(fmt.Errorf("%s: %w (%v)", path, errSilent, c.limits.Silence)) })
	return watched, func() { timer.Reset(c.limits.Silence) }, func() { timer.Stop(); end(context.Canceled) }
}

// heard tells that a body brought something.
type heard struct {
	io.Reader
	awake func()
}

func (h *heard) Read(p []byte) (int, error) {
	n, err := h.Reader.Read(p)
	if n > 0 {
		h.awake()
	}
	return n, err
}
