package openai

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/dynctl/dynctl/internal/proxytest"
)

// A slow, broken or silent network fails requests in time, and none is sent twice.
func TestFaults(t *testing.T) {
	var mu sync.Mutex
	seen := map[int]int{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q struct{ Messages []Message }
		if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
			return // the request broke off
		}
		n, err := strconv.Atoi(q.Messages[0].Content)
		if err != nil {
			t.Error(err)
		}
		mu.Lock()
		seen[n]++
		mu.Unlock()
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, fmt.Sprintf(`data: {"choices":[{"delta":{"content":"%d"},"finish_reason":"stop"}]}`+"\n\ndata: [DONE]\n\n", n))
	}))
	t.Cleanup(srv.Close)
	p := proxytest.New(t, strings.TrimPrefix(srv.URL, "http://"))
	c, err := New("http://"+p.Addr(), "", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	proxytest.Faults(t, p, proxytest.Client{
		Call: func(ctx context.Context, n int) error {
			text := ""
			_, err := c.Chat(ctx, Request{Model: "m", Messages: []Message{{"user", strconv.Itoa(n)}}}, func(d Delta) error {
				text += d.Text
				return nil
			})
			if err == nil && text != strconv.Itoa(n) {
				return fmt.Errorf("answer %q to %d", text, n)
			}
			return err
		},
		Seen: func() map[int]int {
			mu.Lock()
			defer mu.Unlock()
			return maps.Clone(seen)
		},
		Failure: func(err error, late bool) bool {
			return errors.Is(err, ErrUnreachable) || late && errors.Is(err, context.DeadlineExceeded)
		},
	})
}
