package frontend

import (
	"time"

	"github.com/dynctl/dynctl/internal/router"
)

// Settings are settings that change at run time, without a restart. A request keeps the
// strategy that it began with.
type Settings struct {
	Policy   string // of the choice of the decode worker, as router.NewPolicy knows it
	Strategy string // one of protocol's strategies of disaggregation
	// Background sends a prompt to prefill and decode worker at once where that can be.
	Background bool
	Prefill    router.PrefillLimits
	// RemoteTimeout limits one remote prefill.
	RemoteTimeout time.Duration
}

// policies makes every policy once, because some remember their last choice.
func policies() map[string]router.Policy {
	all := map[string]router.Policy{}
	for _, name := range router.Policies() {
		all[name], _ = router.NewPolicy(name) // known by name
	}
	return all
}

// policy is the one in force now.
func (f *Frontend) policy() router.Policy {
	if p := f.policies[f.cfg.Settings().Policy]; p != nil {
		return p
	}
	return f.policies[router.LeastLoaded] // a name that only newer frontends know
}
