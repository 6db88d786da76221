package cluster

import (
	"fmt"
	"strings"
)

// MaxTaints and maxTaintBytes bound the taints of a worker, and those of a request.
const (
	MaxTaints     = 32
	maxTaintBytes = 128
)

// CheckTaints reports what is wrong with a list of taints. A taint is a label such as
// "gpu=h100": printable ASCII characters without blanks and commas.
func CheckTaints(taints []string) error {
	if len(taints) > MaxTaints {
		return fmt.Errorf("%d taints, at most %d are allowed", len(taints), MaxTaints)
	}
	for _, t := range taints {
		bad := func(r rune) bool { return r <= ' ' || r > '~' || r == ',' }
		if t == "" || len(t) > maxTaintBytes || strings.ContainsFunc(t, bad) {
			return fmt.Errorf("%.40q is not a taint: expected up to %d printable characters without blanks and commas, like gpu=h100", t, maxTaintBytes)
		}
	}
	return nil
}
