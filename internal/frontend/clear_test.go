package frontend

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
)

// The routes of Dynamo and SGLang clear the caches of all workers, within a time, and tell
// of each how that went.
func TestClearCaches(t *testing.T) {
	w := newWorld(t)
	f := w.configured(nil, func(f *Frontend) { f.limits.clear = 300 * time.Millisecond })
	post := func(path string) (int, cleared) {
		t.Helper()
		resp := f.do(http.MethodPost, path, nil)
		var out cleared
		if err := json.Unmarshal([]byte(readAll(t, resp)), &out); err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, out
	}
	if status, out := post("/clear_kv_blocks"); status != http.StatusOK || out.Message != "No active worker groups found" {
		t.Errorf("no worker: %d %+v", status, out)
	}
	good, _ := w.realWorker("worker-1", 0)
	f.waitModel(1)
	_ = wholeAnswer(t, f.post("/v1/completions", textBody(body{"prompt": strings.Repeat("x", 5*testBlock), "max_tokens": 1})))
	ready := func(n int) {
		t.Helper()
		patience.Until(t, "the frontend knows the endpoints", func() bool { return len(f.clearing[0].All())+len(f.clearing[1].All()) == n })
	}
	ready(1)
	status, out := post("/clear_kv_blocks")
	if status != http.StatusOK || len(out.Cleared) != 1 || len(out.Failed) != 0 {
		t.Fatalf("%d %+v", status, out)
	}
	if one := out.Cleared[0]; one.Name != "worker-1" || one.InstanceID != good.Status().InstanceID || one.Endpoint != cluster.DefaultNamespace+"/"+cluster.RoleDecode.Component()+"/clear_kv_blocks" || one.Response == nil || one.Response.Blocks < 5 {
		t.Errorf("%+v", one)
	}
	if status, out = post("/flush_cache"); status != http.StatusOK || len(out.Cleared) != 1 || out.Cleared[0].Response.Blocks != 0 {
		t.Errorf("cleared already: %d %+v", status, out)
	}

	// A prefill worker that never answers, and one that fails, are told of; nobody waits longer.
	for name, h := range map[string]requestplane.Handler{
		"worker-2": func(ctx context.Context, _ *requestplane.Request, _ func(any) error) error {
			<-ctx.Done()
			return ctx.Err()
		},
		"worker-3": func(context.Context, *requestplane.Request, func(any) error) error {
			return &requestplane.RemoteError{Kind: requestplane.KindInternal, Message: "no cache today"}
		},
		"worker-4": func(_ context.Context, _ *requestplane.Request, send func(any) error) error {
			return send(protocol.ClearedKV{Blocks: 9})
		},
	} {
		if _, err := w.runtime(name, nil).Serve(t.Context(), cluster.RolePrefill.Component(), cluster.EndpointClearKV, h); err != nil {
			t.Fatal(err)
		}
	}
	ready(4)
	begin := time.Now()
	status, out = post("/clear_kv_blocks")
	if took := time.Since(begin); took > patience.Soon/2 {
		t.Errorf("took %s", took)
	}
	if status != http.StatusOK || len(out.Cleared) != 2 || out.Cleared[1].Name != "worker-4" || out.Cleared[1].Response.Blocks != 9 || len(out.Failed) != 2 ||
		out.Failed[0].Name != "worker-2" || out.Failed[0].Error == "" || !strings.Contains(out.Failed[1].Error, "no cache today") {
		t.Errorf("%d %+v", status, out)
	}
	if status, _ := post("/flush_cache"); status != http.StatusBadRequest {
		t.Errorf("flush with failures: status %d", status)
	}
	if resp := f.do(http.MethodGet, "/clear_kv_blocks", nil); resp.StatusCode != http.StatusMethodNotAllowed || resp.Header.Get("Allow") != "POST, OPTIONS" {
		t.Errorf("GET: %d, %q", resp.StatusCode, resp.Header)
	}
}

func TestClearCachesNeedsTheKey(t *testing.T) {
	w := newWorld(t)
	f := w.configured(func(c *Config) { c.APIKey = "secret" })
	for _, path := range []string{"/clear_kv_blocks", "/flush_cache"} {
		if resp := f.do(http.MethodPost, path, nil); resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s without the key: status %d", path, resp.StatusCode)
		}
		if resp := f.do(http.MethodPost, path, nil, "Authorization", "Bearer secret"); resp.StatusCode != http.StatusOK {
			t.Errorf("%s with the key: status %d", path, resp.StatusCode)
		}
	}
}
