package kube

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"golang.org/x/time/rate"
)

const (
	// DefaultRate is the number of requests a second that one process sends in the long
	// run.
	DefaultRate = 20
	// DefaultBurst is how many requests it sends at once.
	DefaultBurst = 100
	// answerLimit bounds one answer; a page of a list has no more than pageSize objects.
	answerLimit = 256 << 20
	pageSize    = 500
	// retryLimit is the longest pause that a busy server can ask for.
	retryLimit = 10 * time.Second
)

// Types of patches.
const (
	mergePatch  = "application/merge-patch+json"
	applyPatch  = "application/apply-patch+yaml"
	contentJSON = "application/json"
)

// Client sends requests for objects of one namespace to an API server. It is for many
// goroutines.
type Client struct {
	HTTP      *http.Client // with the credentials, and without a timeout
	Server    string       // URL without a slash at the end
	Namespace string
	// Limit delays requests; nil means no limit.
	Limit *rate.Limiter
}

// NewLimit returns the default limit of requests.
func NewLimit() *rate.Limiter { return rate.NewLimiter(DefaultRate, DefaultBurst) }

// Error is an answer of the API server other than success.
type Error struct {
	Code    int
	Reason  string // such as AlreadyExists
	Message string
	retry   time.Duration
}

// Error returns the server's message.
func (e *Error) Error() string { return fmt.Sprintf("%s (%d %s)", e.Message, e.Code, e.Reason) }

// IsNotFound reports whether there is no such object.
func IsNotFound(err error) bool { return hasCode(err, http.StatusNotFound, "") }

// IsExists reports whether an object of that name exists already.
func IsExists(err error) bool { return hasCode(err, http.StatusConflict, "AlreadyExists") }

// IsConflict reports whether a precondition did not hold.
func IsConflict(err error) bool {
	return hasCode(err, http.StatusConflict, "") && !IsExists(err)
}

// IsDenied reports whether the credentials are wrong, or do not suffice.
func IsDenied(err error) bool {
	return hasCode(err, http.StatusUnauthorized, "") || hasCode(err, http.StatusForbidden, "")
}

// IsGone reports whether the version from which to watch, or a page of a list, is too old.
func IsGone(err error) bool { return hasCode(err, http.StatusGone, "") }

// IsRefused reports whether the server answered that it will never do what was asked.
func IsRefused(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Code >= 400 && e.Code < 500 && e.Code != http.StatusTooManyRequests && e.Code != http.StatusRequestTimeout
}

func hasCode(err error, code int, reason string) bool {
	var e *Error
	return errors.As(err, &e) && e.Code == code && (reason == "" || e.Reason == reason)
}

// Get reads an object.
func (c *Client) Get(ctx context.Context, r Resource, name string, into any) error {
	return c.do(ctx, request{method: http.MethodGet, resource: r, name: name}, into)
}

// Create creates an object and reads what became of it.
func (c *Client) Create(ctx context.Context, r Resource, object, into any) error {
	return c.do(ctx, request{method: http.MethodPost, resource: r, content: contentJSON, body: object}, into)
}

// Patch merges a patch into an object.
func (c *Client) Patch(ctx context.Context, r Resource, name string, patch, into any) error {
	return c.do(ctx, request{method: http.MethodPatch, resource: r, name: name, content: mergePatch, body: patch}, into)
}

// Apply makes an object have what the manager wants, and nothing that it wanted before.
func (c *Client) Apply(ctx context.Context, r Resource, name, manager string, object, into any) error {
	query := url.Values{"fieldManager": {manager}, "force": {"true"}}
	return c.do(ctx, request{method: http.MethodPatch, resource: r, name: name, query: query, content: applyPatch, body: object}, into)
}

// Delete deletes an object, if it is the one with that uid and version; empty ones are
// not compared. It returns the uid of what was deleted.
func (c *Client) Delete(ctx context.Context, r Resource, name, uid, version string) (deleted string, err error) {
	pre := map[string]string{}
	if uid != "" {
		pre["uid"] = uid
	}
	if version != "" {
		pre["resourceVersion"] = version
	}
	options := map[string]any{"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": pre}
	var status struct {
		Details struct {
			UID string `json:"uid"`
		} `json:"details"`
	}
	err = c.do(ctx, request{method: http.MethodDelete, resource: r, name: name, content: contentJSON, body: options}, &status)
	return status.Details.UID, err
}

// page is one page of a list.
type page struct {
	Metadata struct {
		ResourceVersion string `json:"resourceVersion"`
		Continue        string `json:"continue"`
	} `json:"metadata"`
	Items []json.RawMessage `json:"items"`
}

// List reads all objects that the selector of labels selects, as they are now, and the
// version of the list.
func (c *Client) List(ctx context.Context, r Resource, selector string) (items []json.RawMessage, version string, err error) {
	query := url.Values{}
	if selector != "" {
		query.Set("labelSelector", selector)
	}
	return c.list(ctx, r, query, "")
}

// Versions reads the metadata of all objects that the selector selects, or of the one of
// that name, as they are now, and the version of the list.
func (c *Client) Versions(ctx context.Context, r Resource, selector, name string) (found []Meta, version int64, err error) {
	query := url.Values{}
	if selector != "" {
		query.Set("labelSelector", selector)
	}
	if name != "" {
		query.Set("fieldSelector", "metadata.name="+name)
	}
	items, v, err := c.list(ctx, r, query, "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")
	if err != nil {
		return nil, 0, err
	}
	for _, raw := range items {
		var o Object
		if err := json.Unmarshal(raw, &o); err != nil {
			return nil, 0, fmt.Errorf("decode metadata: %w", err)
		}
		found = append(found, o.Metadata)
	}
	return found, Meta{ResourceVersion: v}.Version(), nil
}

func (c *Client) list(ctx context.Context, r Resource, query url.Values, accept string) (items []json.RawMessage, version string, err error) {
	query.Set("limit", strconv.Itoa(pageSize))
	for {
		var p page
		if err := c.do(ctx, request{method: http.MethodGet, resource: r, query: query, accept: accept}, &p); err != nil {
			return nil, "", err
		}
		items = append(items, p.Items...)
		if p.Metadata.Continue == "" {
			return items, p.Metadata.ResourceVersion, nil
		}
		query.Set("continue", p.Metadata.Continue)
	}
}

// Probe asks for one object, which the server answers only if its own store does.
func (c *Client) Probe(ctx context.Context, r Resource) error {
	return c.do(ctx, request{method: http.MethodGet, resource: r, query: url.Values{"limit": {"1"}}}, &page{})
}

// request is one request for objects of a resource.
type request struct {
	method   string
	resource Resource
	name     string // empty for all objects
	part     string // subresource, if that is meant
	about    string // path of what the server says of itself, in place of objects
	query    url.Values
	accept   string // JSON if empty
	content  string // type of body
	body     any    // encoded as JSON
}

// do sends a request, again when the server is too busy for it.
func (c *Client) do(ctx context.Context, r request, into any) error {
	for {
		err := c.once(ctx, r, into)
		var e *Error
		if !errors.As(err, &e) || e.Code != http.StatusTooManyRequests {
			return err
		}
		wait(ctx, e.retry)
		if ctx.Err() != nil {
			return errors.Join(context.Cause(ctx), err)
		}
	}
}

func (c *Client) once(ctx context.Context, r request, into any) error {
	resp, err := c.send(ctx, r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, answerLimit))
	if err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("decode the answer: %w", err)
	}
	return nil
}

// send returns a successful response, whose body the caller closes.
func (c *Client) send(ctx context.Context, r request) (*http.Response, error) {
	if c.Limit != nil {
		if err := c.Limit.Wait(ctx); err != nil {
			return nil, fmt.Errorf("wait for a turn to ask the API server: %w", err)
		}
	}
	var body io.Reader
	if r.body != nil {
		encoded, err := json.Marshal(r.body)
		if err != nil {
			return nil, fmt.Errorf("encode a request: %w", err)
		}
		body = bytes.NewReader(encoded)
	}
	address := c.Server + r.about
	if r.about == "" {
		address += r.resource.path(url.PathEscape(c.Namespace), url.PathEscape(r.name))
	}
	if r.part != "" {
		address += "/" + r.part
	}
	if len(r.query) > 0 {
		address += "?" + r.query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, r.method, address, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", cmp.Or(r.accept, contentJSON))
	req.Header.Set("User-Agent", "dynctl")
	if r.content != "" {
		req.Header.Set("Content-Type", r.content)
	}
	resp, err := c.HTTP.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode >= 200 && resp.StatusCode < 300 {
		return resp, nil
	}
	defer resp.Body.Close()
	return nil, failure(resp, r)
}

// failure reads the status in an answer.
func failure(resp *http.Response, r request) error {
	var status struct {
		Reason  string `json:"reason"`
		Message string `json:"message"`
	}
	raw, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10)) // what can be read of it
	if json.Unmarshal(raw, &status) != nil || status.Message == "" {
		status.Message = strings.TrimSpace(string(raw))
	}
	e := &Error{Code: resp.StatusCode, Reason: status.Reason, Message: status.Message, retry: time.Second}
	if s, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && s > 0 {
		e.retry = min(time.Duration(s)*time.Second, retryLimit)
	}
	if e.Message == "" {
		e.Message = http.StatusText(e.Code)
	}
	if e.Code == http.StatusNotFound && r.name == "" && r.about == "" {
		return fmt.Errorf("%w: the API server does not know %s: install configs/kubernetes/crds.yaml", e, r.resource)
	}
	return e
}
