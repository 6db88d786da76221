package profile

import "time"

// Learned is a profile that a running cluster has learned of its workers.
type Learned struct {
	Node string    `json:"node"` // that learned it
	Time time.Time `json:"time"`
	// Missing says why the profile is not known yet; empty once it is.
	Missing string  `json:"missing,omitempty"`
	Profile Profile `json:"profile"`
	// Observed are the steps that Profile.Step was found from; nil from nodes of earlier releases.
	Observed *Observed `json:"observed,omitempty"`
	// Unknown names fields of the profile that nothing has shown: they are 0.
	Unknown []string `json:"unknown,omitempty"`
}
