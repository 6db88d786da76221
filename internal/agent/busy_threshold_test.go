package agent

import (
	"testing"

	"github.com/dynctl/dynctl/internal/frontend"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/router"
)

// What a frontend stores is what all frontends use; limits that are not named stay.
func TestSetBusy(t *testing.T) {
	n := startTestNode(t)
	n.cfg.Router.PrefillTokensFrac = 2
	set := func(c frontend.BusyChange, want router.BusyLimits) {
		t.Helper()
		if err := n.settings.setBusy(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		patience.Until(t, "the limits have changed", func() bool { return n.settings.frontend().Busy == want })
	}
	set(frontend.BusyChange{KVShare: new(0.9), PrefillTokens: new(int64(500))}, router.BusyLimits{KVShare: 0.9, PrefillTokens: 500, PrefillSteps: 2})
	set(frontend.BusyChange{KVShare: new(0.0), PrefillSteps: new(1.5)}, router.BusyLimits{PrefillTokens: 500, PrefillSteps: 1.5})
	if err := n.mem.Close(); err != nil {
		t.Fatal(err)
	}
	if err := n.settings.setBusy(t.Context(), frontend.BusyChange{KVShare: new(0.5)}); err == nil {
		t.Error("stored without a store")
	}
}
