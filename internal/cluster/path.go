package cluster

import (
	"slices"
	"time"
)

// Path describes how worker From reaches the memory of worker To over NIXL, as From sees
// it.
type Path struct {
	From string `json:"from"` // worker
	To   string `json:"to"`   // worker
	// Transport is the chosen transport; empty if there is no path.
	Transport string `json:"transport"`
	// Failed says why there is no path, or why it cannot be used now.
	Failed string `json:"failed,omitempty"`
	// Inbound is the transport by which To is connected to From. It is set only when From
	// knows nothing else about the path.
	Inbound    string          `json:"inbound,omitempty"`
	Candidates []PathCandidate `json:"candidates"`
	Test       *PathTest       `json:"test"` // the latest; nil before the first
}

// PathCandidate is one transport, in order of preference, with From's verdict on it.
type PathCandidate struct {
	Transport string `json:"transport"`
	// Verdict is chosen, not_needed, unsupported, not_forced, unreachable or disproved.
	Verdict string `json:"verdict"`
	Reason  string `json:"reason"`
}

// The verdicts that operators should notice.
const (
	PathChosen      = "chosen"
	PathUnreachable = "unreachable" // should have worked
	PathDisproved   = "disproved"   // failed its self-test
)

// PathTest is a self-test: a pattern written, read back and compared.
type PathTest struct {
	At        time.Time `json:"at"`
	Transport string    `json:"transport"`
	WriteGBps float64   `json:"write_gbps"` // 1e9 bytes per second
	ReadGBps  float64   `json:"read_gbps"`
	RTTMicros float64   `json:"rtt_us"` // round trip of a small request
	Error     string    `json:"error,omitempty"`
}

// OK reports whether transfers can be expected to work.
func (p Path) OK() bool {
	return p.Transport != "" && p.Failed == "" && (p.Test == nil || p.Test.Error == "")
}

// Fallbacks returns the candidates that should have been chosen and were not.
func (p Path) Fallbacks() []PathCandidate {
	return slices.DeleteFunc(slices.Clone(p.Candidates), func(c PathCandidate) bool {
		return c.Verdict != PathUnreachable && c.Verdict != PathDisproved
	})
}
