package bench

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// SLO holds the limits that a good answer keeps; 0 is no limit.
type SLO struct {
	TTFT, ITL, TPOT, E2E time.Duration
}

// fields are the limits by name, in order.
func (s *SLO) fields() []struct {
	name  string
	limit *time.Duration
} {
	return []struct {
		name  string
		limit *time.Duration
	}{{"ttft", &s.TTFT}, {"itl", &s.ITL}, {"tpot", &s.TPOT}, {"e2e", &s.E2E}}
}

// ParseSLO reads limits like "ttft=300ms,itl=40ms,e2e=5s".
func ParseSLO(text string) (SLO, error) {
	var s SLO
	for part := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		i := slices.IndexFunc(s.fields(), func(f struct {
			name  string
			limit *time.Duration
		}) bool {
			return f.name == name
		})
		if i < 0 {
			return SLO{}, fmt.Errorf("%q is not one of ttft, itl, tpot, e2e with a time, as ttft=300ms,itl=40ms", part)
		}
		limit := s.fields()[i].limit
		if *limit > 0 {
			return SLO{}, fmt.Errorf("%s stands there twice", name)
		}
		d, err := time.ParseDuration(value)
		if err == nil && d <= 0 {
			err = errors.New("it must be above 0")
		}
		if err != nil {
			return SLO{}, fmt.Errorf("%s=%s: %w", name, value, err)
		}
		*limit = d
	}
	return s, nil
}

// String is the limits as [ParseSLO] reads them; empty without any.
func (s SLO) String() string {
	var parts []string
	for _, f := range s.fields() {
		if *f.limit > 0 {
			parts = append(parts, f.name+"="+f.limit.String())
		}
	}
	return strings.Join(parts, ",")
}

// Met reports whether a request kept all limits. A limit on times between tokens is kept by
// an answer of one token; itl limits the mean of an answer.
func (s SLO) Met(r Record) bool {
	keeps := func(limit, got time.Duration) bool { return limit == 0 || got <= limit }
	itl, _ := r.ITL()
	tpot, _ := r.TPOT()
	return r.Kind == "" && keeps(s.TTFT, r.TTFT()) && keeps(s.ITL, itl) && keeps(s.TPOT, tpot) && keeps(s.E2E, r.E2E())
}
