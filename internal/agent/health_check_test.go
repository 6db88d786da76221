package agent

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/patience"
)

// hanging is a device whose steps hang while it is locked.
type hanging struct {
	sync.Mutex
	steps atomic.Int32
}

func (h *hanging) step() error {
	h.steps.Add(1)
	h.Lock()
	defer h.Unlock()
	return nil
}

// A worker whose device hangs shows in /health, in its status and to others, until the
// device goes on. The process lives all the time.
func TestStuckWorkerIsUnhealthy(t *testing.T) {
	x := startExternal(t)
	cfg := x.config()
	cfg.HealthCheck.Enabled, cfg.HealthCheck.Wait, cfg.HealthCheck.Timeout = true, 100*time.Millisecond, time.Second
	a := startAgent(t, cfg)
	device := &hanging{}
	t.Cleanup(func() { device.TryLock(); device.Unlock() })
	a.loads.set(func(l *loads) { l.opts.Fail = device.step })
	declare(t, x.store, 1)
	health := func() (code int, h health) {
		code, body := get(t, a.node.StatusURL+"/health")
		if err := json.Unmarshal([]byte(body), &h); err != nil {
			t.Fatalf("%d %s: %v", code, body, err)
		}
		return code, h
	}
	ready := func() {
		t.Helper()
		patience.Until(t, "the worker is ready", func() bool {
			code, h := health()
			return code == http.StatusOK && h.Status == "ready" && h.Endpoints["generate"] == "ready" && h.Workers["worker-1"] == cluster.StateReady &&
				len(h.Reasons) == 0 && status(t, x.store, "worker-1").Unhealthy == ""
		})
	}
	ready()
	before := device.steps.Load()
	patience.Until(t, "it is probed", func() bool { return device.steps.Load() > before })
	device.Lock()
	patience.Until(t, "it is unhealthy", func() bool {
		code, h := health()
		return code == http.StatusServiceUnavailable && h.Status == "notready" && h.Endpoints["generate"] == "notready" && h.Endpoints["handover"] == "notready" &&
			h.Endpoints["stats"] == "ready" && h.Workers["worker-1"] == cluster.StateDegraded &&
			len(h.Reasons) == 1 && strings.HasPrefix(h.Reasons[0], "worker-1 is unhealthy: ")
	})
	if code, body := get(t, a.node.StatusURL+"/live"); code != http.StatusOK {
		t.Errorf("/live: %d %s", code, body)
	}
	patience.Until(t, "its status says so", func() bool {
		st := status(t, x.store, "worker-1")
		return st.State == cluster.StateDegraded && strings.HasPrefix(st.Reason, "unhealthy: ") && st.Unhealthy != ""
	})
	device.Unlock()
	ready()
	if st := status(t, x.store, "worker-1").Stats; st.RequestsTotal != 0 || st.StepsTotal != 0 || st.PromptTokensTotal != 0 {
		t.Errorf("probes are counted: %+v", st)
	}
}
