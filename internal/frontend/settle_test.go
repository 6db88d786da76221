package frontend

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/patience"
)

// A frontend that starts answers when it has loaded the models that are there, and says so.
func TestRequestsWaitForTheStart(t *testing.T) {
	w := newWorld(t)
	files := make(chan struct{})
	fk := w.fake("worker-1", say("abc"), func(fk *fake) { fk.wait = files })
	f := w.frontend()
	patience.Until(t, "it asks for the files", func() bool { return fk.fetched.Load() > 0 })
	health := func() (int, string) {
		resp, err := f.client.Get(f.URL() + "/health")
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, readAll(t, resp)
	}
	if status, text := health(); status != http.StatusServiceUnavailable || !strings.Contains(text, `"stage":"starting"`) {
		t.Errorf("health is %d, %s", status, text)
	}
	answered := make(chan string, 2) // what was wrong
	for _, ask := range []struct{ method, path, body, says string }{
		{http.MethodGet, "/v1/models", "", `"id":"tiny"`},
		{http.MethodPost, "/v1/completions", `{"model":"tiny","prompt":"Hi","max_tokens":3}`, `"text":"abc"`},
	} {
		req, err := http.NewRequestWithContext(t.Context(), ask.method, f.URL()+ask.path, strings.NewReader(ask.body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		go func() {
			resp, err := f.client.Do(req)
			if err != nil {
				answered <- err.Error()
				return
			}
			defer resp.Body.Close()
			text, _ := io.ReadAll(resp.Body)
			if !strings.Contains(string(text), ask.says) {
				answered <- fmt.Sprintf("%s: status %d, %s", ask.path, resp.StatusCode, text)
				return
			}
			answered <- ""
		}()
	}
	close(files)
	for range 2 {
		if wrong := <-answered; wrong != "" {
			t.Error(wrong)
		}
	}
	if status, text := health(); status != http.StatusOK {
		t.Errorf("health is %d, %s", status, text)
	}
}

// A model that cannot be loaded delays the requests at the start, and no longer than that.
func TestRequestsWaitForTheStartForAWhile(t *testing.T) {
	w := newWorld(t)
	files := make(chan struct{})
	fk := w.fake("worker-1", say("abc"), func(fk *fake) { fk.wait = files })
	t.Cleanup(func() { close(files) })
	f := w.frontend(func(f *Frontend) { f.limits.settle, f.limits.fetch = 50*time.Millisecond, 10*time.Minute })
	patience.Until(t, "it asks for the files", func() bool { return fk.fetched.Load() > 0 })
	begin := time.Now()
	resp := f.post("/v1/completions", textBody(nil))
	if e := failureOf(t, resp); resp.StatusCode != http.StatusServiceUnavailable || time.Since(begin) < 50*time.Millisecond {
		t.Errorf("status %d, %+v after %s", resp.StatusCode, e, time.Since(begin))
	}
}

// Without a worker there is nothing to wait for.
func TestAnEmptyFrontendIsSettled(t *testing.T) {
	f := newWorld(t).frontend(func(f *Frontend) { f.limits.settle = 10 * time.Minute })
	resp := f.post("/v1/completions", textBody(nil))
	if text := readAll(t, resp); resp.StatusCode != http.StatusNotFound {
		t.Errorf("status %d, %s", resp.StatusCode, text)
	}
}
