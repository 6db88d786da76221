package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"
)

// sseClient reads streamed chat completions. It uses as little processor time as it can,
// because it shares the cores with the measured node.
type sseClient struct {
	http *http.Client
}

func newSSEClient() *sseClient {
	return &sseClient{&http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true}}}
}

func (c *sseClient) close() { c.http.CloseIdleConnections() }

// to returns the frontend at a URL as a target.
func (c *sseClient) to(url string) target { return frontendTarget{c, url + "/v1/chat/completions"} }

type frontendTarget struct {
	client *sseClient
	url    string
}

var (
	eventMark = []byte("data: ")
	doneMark  = []byte("data: [DONE]")
	textMark  = []byte(`"content":"`)
	usageMark = []byte(`"usage":{`)
	// imagesMark is in an event with the timing of images.
	imagesMark = []byte(`"images":{`)
	errorMark  = []byte(`data: {"error"`)
)

// errStream is returned when a stream ends early.
var errStream = errors.New("the stream broke off")

// answer implements target.
func (t frontendTarget) answer(ctx context.Context, q question) (a answer, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.url, bytes.NewReader(q.body))
	if err != nil {
		return a, err
	}
	req.Header.Set("Content-Type", "application/json")
	last := time.Now()
	resp, err := t.client.http.Do(req)
	if err != nil {
		return a, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1000)) // as much as there is
		return a, fmt.Errorf("status %d: %s", resp.StatusCode, text)
	}
	a.gaps = make([]time.Duration, 0, q.output)
	r := bufio.NewReaderSize(resp.Body, 16<<10)
	for {
		line, err := r.ReadSlice('\n')
		switch {
		case err != nil:
			return a, fmt.Errorf("%w after %d events: %w", errStream, a.events, err)
		case !bytes.HasPrefix(line, eventMark):
			continue
		case bytes.HasPrefix(line, doneMark):
			_, err := io.Copy(io.Discard, r) // so that the connection is used again
			return a, err
		case bytes.HasPrefix(line, errorMark):
			return a, fmt.Errorf("%w: %s", errStream, line)
		case hasText(line):
			now := time.Now()
			if a.events == 0 {
				a.ttft = now.Sub(last)
			} else {
				a.gaps = append(a.gaps, now.Sub(last))
				a.rest += now.Sub(last)
			}
			last = now
			a.events++
			if q.arrived != nil {
				q.arrived()
			}
		}
		if q.timing != nil && bytes.Contains(line, imagesMark) {
			if err := q.timing(line[len(eventMark):]); err != nil {
				return a, fmt.Errorf("read timing: %w", err)
			}
		}
		if bytes.Contains(line, usageMark) {
			if a.tokens, err = completionTokens(line); err != nil {
				return a, err
			}
		}
	}
}

// hasText reports whether an event contains text.
func hasText(line []byte) bool {
	i := bytes.Index(line, textMark)
	return i >= 0 && i+len(textMark) < len(line) && line[i+len(textMark)] != '"'
}

func completionTokens(line []byte) (int, error) {
	var e struct {
		Usage struct {
			CompletionTokens int `json:"completion_tokens"`
		} `json:"usage"`
	}
	if err := json.Unmarshal(line[len(eventMark):], &e); err != nil {
		return 0, fmt.Errorf("read usage: %w", err)
	}
	return e.Usage.CompletionTokens, nil
}

// floor is a server that answers every request at once with a stream of events. It shows
// the cost of net/http alone.
type floor struct {
	url  string
	srv  *http.Server
	done chan struct{}
}

// startFloor starts a floor whose answers have the given number of events.
func startFloor(events int) (*floor, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start plain server: %w", err)
	}
	f := &floor{url: "http://" + ln.Addr().String(), done: make(chan struct{})}
	const head = `data: {"id":"chatcmpl-0123456789abcdef01234567","object":"chat.completion.chunk","created":1700000000,` +
		`"model":"dynctl-tiny","system_fingerprint":null,"choices":[`
	event := []byte(head + `{"index":0,"delta":{"content":" token"},"logprobs":null,"finish_reason":null}],"usage":null}` + "\n\n")
	end := []byte(head + `],"usage":{"prompt_tokens":1,"completion_tokens":` + strconv.Itoa(events) + `}}` + "\n\n" + "data: [DONE]\n\n")
	f.srv = &http.Server{ReadHeaderTimeout: stopStep, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return // the client has left
		}
		w.Header().Set("Content-Type", "text/event-stream")
		flusher := http.NewResponseController(w)
		for range events {
			if _, err := w.Write(event); err != nil {
				return
			}
			if err := flusher.Flush(); err != nil {
				return
			}
		}
		_, _ = w.Write(end) // the client has left otherwise
	})}
	go func() {
		defer close(f.done)
		_ = f.srv.Serve(ln) // ends with close
	}()
	return f, nil
}

func (f *floor) close() {
	_ = f.srv.Close() // nothing is in flight
	<-f.done
}
