package config

import (
	"errors"
	"slices"
	"strings"
)

// Problem is one wrong setting.
type Problem struct {
	// Key is the dotted name; empty when the file as a whole is wrong.
	Key string
	// Origin is the source of the value.
	Origin Origin
	// Text says what is wrong: it quotes the value and names what is expected.
	Text string
}

// Error returns "where: key: what is wrong".
func (p Problem) Error() string {
	parts := []string{}
	if p.Origin.Kind != FromDefault {
		parts = append(parts, p.Origin.String())
	}
	if p.Key != "" {
		parts = append(parts, p.Key)
	}
	return strings.Join(append(parts, p.Text), ": ")
}

// Problems is returned by loading and validating: every wrong setting, one per
// line. It is never empty.
type Problems []Problem

// Error returns one line for each problem.
func (ps Problems) Error() string { return Lines(ps) }

// Lines are errors, one on each line.
func Lines[E error](errs []E) string {
	lines := make([]string, len(errs))
	for i, err := range errs {
		lines[i] = err.Error()
	}
	return strings.Join(lines, "\n")
}

// err returns nil when there are no problems; Problems(nil) in an error would not be nil.
func (ps Problems) err() error {
	if len(ps) == 0 {
		return nil
	}
	return ps
}

// Locate adds to the problems in err where each value came from. Validate does
// not know that; a caller that loaded the configuration does:
//
//	err = origins.Locate(cfg.Validate())
func (o *Origins) Locate(err error) error {
	var ps Problems
	if !errors.As(err, &ps) {
		return err
	}
	ps = slices.Clone(ps)
	for i, p := range ps {
		if v, ok := o.Of(p.Key); ok && p.Origin.Kind == FromDefault {
			ps[i].Origin = v.Origin
		}
	}
	return ps
}
