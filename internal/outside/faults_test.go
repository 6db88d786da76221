package outside

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/proxytest"
	"github.com/dynctl/dynctl/internal/requestplane"
)

// A slow, broken or silent network fails requests to a service in time, and none is sent
// twice.
func TestServiceFaults(t *testing.T) {
	var mu sync.Mutex
	seen := map[int]int{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the request broke off
		}
		n, err := strconv.Atoi(string(body))
		if err != nil {
			t.Error(err)
		}
		mu.Lock()
		seen[n]++
		mu.Unlock()
		w.Header().Set("Content-Type", typeJSON)
		_, _ = w.Write(body)
	}))
	t.Cleanup(srv.Close)
	p := proxytest.New(t, strings.TrimPrefix(srv.URL, "http://"))
	s, err := NewService("http://"+p.Addr(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	proxytest.Faults(t, p, proxytest.Client{
		Call: func(ctx context.Context, n int) error {
			body, err := protocol.Marshal(n)
			if err != nil {
				return err
			}
			return s.Handle(ctx, &requestplane.Request{ID: strconv.Itoa(n), Body: body}, func(any) error { return nil })
		},
		Seen: func() map[int]int {
			mu.Lock()
			defer mu.Unlock()
			return maps.Clone(seen)
		},
		Failure: func(err error, late bool) bool {
			var remote *requestplane.RemoteError
			return errors.As(err, &remote) && remote.Kind == requestplane.KindUnavailable || late && errors.Is(err, context.DeadlineExceeded)
		},
	})
}
