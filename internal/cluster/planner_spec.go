package cluster

import "time"

// PlannerSpec overrides settings of the planner for one pool. Zero fields override nothing.
type PlannerSpec struct {
	// Mode is [PlannerOff], or empty for that of the cluster.
	Mode       string        `json:"mode,omitempty"`
	TTFT       time.Duration `json:"ttft_ns,omitempty"`
	ITL        time.Duration `json:"itl_ns,omitempty"`
	PrefillMin int           `json:"prefill_min,omitempty"`
	PrefillMax int           `json:"prefill_max,omitempty"`
	DecodeMin  int           `json:"decode_min,omitempty"`
	DecodeMax  int           `json:"decode_max,omitempty"`
}

// PlannerOff is the [PlannerSpec.Mode] of a pool that the planner leaves alone.
const PlannerOff = "off"

func (s PlannerSpec) check(wrong func(field, format string, args ...any)) {
	if s.Mode != "" && s.Mode != PlannerOff {
		wrong("mode", "%q is not %s, which leaves the pool alone", s.Mode, PlannerOff)
	}
	for _, f := range []struct {
		name  string
		value time.Duration
	}{{"ttft", s.TTFT}, {"itl", s.ITL}} {
		if f.value < 0 {
			wrong(f.name, "%s is negative", f.value)
		}
	}
	for _, r := range []struct {
		role        Role
		least, most int
	}{{RolePrefill, s.PrefillMin, s.PrefillMax}, {RoleDecode, s.DecodeMin, s.DecodeMax}} {
		switch {
		case r.least < 0 || r.least > MaxWorkersPerRole:
			wrong(string(r.role)+"_min", "%d is not between 0 and %d", r.least, MaxWorkersPerRole)
		case r.most < 0 || r.most > MaxWorkersPerRole:
			wrong(string(r.role)+"_max", "%d is not between 0 and %d", r.most, MaxWorkersPerRole)
		case r.most > 0 && r.most < r.least:
			wrong(string(r.role)+"_max", "%d is less than %s_min, %d", r.most, r.role, r.least)
		}
	}
}
