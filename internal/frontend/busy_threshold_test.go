package frontend

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/dynctl/dynctl/internal/router"
)

func TestBusyThresholds(t *testing.T) {
	w := newWorld(t)
	w.fake("worker-1", say("abc"))
	s := routing()
	s.change(func(k *Settings) { k.Busy = router.BusyLimits{KVShare: 0.9, PrefillSteps: 1.5} })
	var broken atomic.Bool
	f := w.configured(func(c *Config) {
		c.Settings = s.get
		c.SetBusy = func(_ context.Context, change BusyChange) error {
			if broken.Load() {
				return errors.New("no store")
			}
			s.change(func(k *Settings) { change.apply(&k.Busy) })
			return nil
		}
	}).waitModel(1)
	get := func() string {
		resp, err := f.client.Get(f.URL() + "/busy_threshold")
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(readAll(t, resp))
	}
	const first = `{"model":"tiny","active_decode_blocks_threshold":0.9,"active_prefill_tokens_threshold":0,"active_prefill_tokens_threshold_frac":1.5}`
	const second = `{"model":"tiny","active_decode_blocks_threshold":0.25,"active_prefill_tokens_threshold":10000,"active_prefill_tokens_threshold_frac":1.5}`
	for _, tc := range []struct {
		name   string
		ask    body
		status int
		says   string
		after  string
	}{
		{"asks", body{"model": testModel, "active_decode_blocks_threshold": nil}, 200, first, first},
		{"changes", body{"model": testModel, "active_decode_blocks_threshold": 0.25, "active_prefill_tokens_threshold": 10000}, 200, second, second},
		{"no model", body{"active_decode_blocks_threshold": 0.5}, 400, `"param":"model"`, second},
		{"unknown model", body{"model": "m", "active_decode_blocks_threshold": 0.5}, 404, "model_not_found", second},
		{"share", body{"model": testModel, "active_decode_blocks_threshold": 1.5}, 400, "active_decode_blocks_threshold", second},
		{"tokens", body{"model": testModel, "active_prefill_tokens_threshold": -1}, 400, "active_prefill_tokens_threshold", second},
		{"steps", body{"model": testModel, "active_prefill_tokens_threshold_frac": "1"}, 400, "active_prefill_tokens_threshold_frac", second},
		{"another member", body{"model": testModel, "threshold": 1}, 400, "unknown_parameter", second},
		{"too much", body{"model": strings.Repeat("m", maxThresholdBody)}, 413, "larger than", second},
	} {
		resp := f.post("/busy_threshold", tc.ask)
		if text := readAll(t, resp); resp.StatusCode != tc.status || !strings.Contains(text, tc.says) {
			t.Errorf("%s: status %d, %s", tc.name, resp.StatusCode, text)
		}
		if got, want := get(), `{"thresholds":[`+tc.after+`]}`; got != want {
			t.Errorf("%s: then %s, want %s", tc.name, got, want)
		}
	}
	broken.Store(true)
	resp := f.post("/busy_threshold", body{"model": testModel, "active_decode_blocks_threshold": 0.5})
	if text := readAll(t, resp); resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(text, "could not be stored") {
		t.Errorf("status %d, %s", resp.StatusCode, text)
	}
}
