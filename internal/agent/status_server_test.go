package agent

import (
	"context"
	"errors"
	"net"
	"net/http"
	"testing"
	"time"
)

// A request that does not end keeps the status server no longer than its stop may take.
func TestStatusServerStopsInTime(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	asked := make(chan struct{})
	s := &statusServer{done: make(chan struct{}), srv: &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(asked)
		<-r.Context().Done()
	})}}
	go func() {
		defer close(s.done)
		_ = s.srv.Serve(ln)
	}()
	answered := make(chan error, 1)
	go func() {
		resp, err := http.Get("http://" + ln.Addr().String())
		if err == nil {
			_ = resp.Body.Close()
		}
		answered <- err
	}()
	<-asked
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := s.close(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("close: %v", err)
	}
	select {
	case err := <-answered:
		if err == nil {
			t.Error("the request was answered")
		}
	case <-time.After(long):
		t.Error("the connection is still open")
	}
}
