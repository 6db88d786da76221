package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Follower lists the objects of a resource and follows them by watches, until its context
// ends.
type Follower[T any] struct {
	Client   *Client
	Resource Resource
	Selector string // of labels; empty selects all
	// Replace takes over a list, which is complete. It follows whenever the changes since
	// the last one are not known.
	Replace func(all []*T, version int64)
	// Changed takes over one change. gone means that the object was deleted or is selected
	// no more; it is then as it was before.
	Changed func(object *T, gone bool, version int64)
	// Answered is called after each sign of life of the server. Failing is called when it
	// fails to answer, with the time of the next attempt.
	Answered func()
	Failing  func(err error, next time.Time)

	version string // from which to watch; empty: list
}

const (
	followRetryMin = 100 * time.Millisecond
	followRetryMax = 5 * time.Second
	// listTimeout bounds one list.
	listTimeout = 30 * time.Second
	// watchSeconds is the least time after which the server ends a watch; up to as much is
	// added at random, so that watches do not end together.
	watchSeconds = 300
)

// Run follows until ctx ends. A restart ends the watch under way, and another one begins
// where it was.
func (f *Follower[T]) Run(ctx context.Context, restart <-chan struct{}) {
	retry := followRetryMin
	for ctx.Err() == nil {
		begun := time.Now()
		progress, err := f.round(ctx, restart)
		if progress {
			retry = followRetryMin
		}
		if err == nil || ctx.Err() != nil {
			if time.Since(begun) < followRetryMin { // never in a tight loop
				wait(ctx, followRetryMin)
			}
			continue
		}
		if IsGone(err) {
			f.version = ""
			if progress { // a list that is gone at once is tried again later
				continue
			}
		}
		pause := retry/2 + rand.N(retry/2)
		retry = min(2*retry, followRetryMax)
		f.Failing(err, time.Now().Add(pause))
		wait(ctx, pause)
	}
}

// wait waits for d or the end of ctx.
func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// round lists if it must, and then watches until the watch ends. progress reports whether
// the server has answered.
func (f *Follower[T]) round(ctx context.Context, restart <-chan struct{}) (progress bool, err error) {
	if f.version == "" {
		if err := f.list(ctx); err != nil {
			return false, err
		}
		progress = true
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	query := url.Values{
		"watch": {"true"}, "allowWatchBookmarks": {"true"}, "resourceVersion": {f.version},
		"timeoutSeconds": {strconv.Itoa(watchSeconds + rand.N(watchSeconds))},
	}
	if f.Selector != "" {
		query.Set("labelSelector", f.Selector)
	}
	resp, err := f.Client.send(ctx, request{method: http.MethodGet, resource: f.Resource, query: query})
	if err != nil {
		return progress, err
	}
	defer resp.Body.Close()
	f.Answered()
	restarted := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-restart:
			close(restarted)
			cancel()
		case <-ctx.Done():
		}
	}()
	defer func() { cancel(); <-ended }()
	err = f.read(json.NewDecoder(resp.Body))
	select {
	case <-restarted:
		return true, nil
	default:
		return true, err
	}
}

// list takes over all objects.
func (f *Follower[T]) list(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	raw, version, err := f.Client.List(ctx, f.Resource, f.Selector)
	if err != nil {
		return fmt.Errorf("list %s: %w", f.Resource, err)
	}
	all := make([]*T, 0, len(raw))
	for _, item := range raw {
		object := new(T)
		if err := json.Unmarshal(item, object); err != nil {
			return fmt.Errorf("list %s: decode: %w", f.Resource, err)
		}
		all = append(all, object)
	}
	f.Replace(all, Meta{ResourceVersion: version}.Version())
	f.version = version
	f.Answered()
	return nil
}

// read takes over the events of a watch until it ends, which is no error if the server ends
// it in order.
func (f *Follower[T]) read(events *json.Decoder) error {
	for {
		var ev struct {
			Type   string          `json:"type"`
			Object json.RawMessage `json:"object"`
		}
		if err := events.Decode(&ev); err != nil {
			if errors.Is(err, context.Canceled) || errors.Is(err, io.EOF) {
				return nil // stopped here, or by the server when the time of the watch was over
			}
			return fmt.Errorf("watch %s: %w", f.Resource, err)
		}
		if ev.Type == "ERROR" {
			var status struct {
				Code    int    `json:"code"`
				Reason  string `json:"reason"`
				Message string `json:"message"`
			}
			if err := json.Unmarshal(ev.Object, &status); err != nil {
				return fmt.Errorf("watch %s: decode an error: %w", f.Resource, err)
			}
			return fmt.Errorf("watch %s: %w", f.Resource, &Error{Code: status.Code, Reason: status.Reason, Message: status.Message})
		}
		var meta Object
		if err := json.Unmarshal(ev.Object, &meta); err != nil {
			return fmt.Errorf("watch %s: decode: %w", f.Resource, err)
		}
		if ev.Type != "BOOKMARK" {
			object := new(T)
			if err := json.Unmarshal(ev.Object, object); err != nil {
				f.version = "" // what changed is not known
				return fmt.Errorf("watch %s: decode: %w", f.Resource, err)
			}
			f.Changed(object, ev.Type == "DELETED", meta.Metadata.Version())
		}
		f.version = meta.Metadata.ResourceVersion
		f.Answered()
	}
}
