package frontend

import (
	"time"

	"github.com/dynctl/dynctl/internal/router"
)

// Settings holds settings that change at run time, without a restart. A request keeps the
// strategy with which it began.
type Settings struct {
	Policy   string // of the choice of the decode worker, as router.NewPolicy knows it
	Strategy string // one of protocol's strategies of disaggregation
	// Background sends a prompt to the prefill and the decode worker at the same time, if
	// possible.
	Background bool
	Prefill    router.PrefillLimits
	// RemoteTimeout bounds one remote prefill.
	RemoteTimeout time.Duration
	// Busy excludes workers from requests that have no output yet.
	Busy    router.BusyLimits
	Session SessionSettings
	// QueuePolicy orders the waiting requests of one client.
	QueuePolicy string
	// RecordLoad has the load of the last hour remembered.
	RecordLoad bool
}

// policies makes each policy once, because some keep state between choices.
func policies() map[string]router.Policy {
	all := map[string]router.Policy{}
	for _, name := range router.Policies() {
		all[name], _ = router.NewPolicy(name) // known by name
	}
	return all
}

// policy returns the current policy.
func (f *Frontend) policy() router.Policy {
	if p := f.policies[f.cfg.Settings().Policy]; p != nil {
		return p
	}
	return f.policies[router.LeastLoaded] // a policy that only newer frontends know
}
