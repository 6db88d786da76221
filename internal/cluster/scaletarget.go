package cluster

import (
	"fmt"
	"strings"
)

// ScaleTarget names a Kubernetes object that has a scale subresource, as the scaleTargetRef of a
// HorizontalPodAutoscaler does. The zero ScaleTarget is none.
type ScaleTarget struct{ Resource, Group, Name string }

// ScaleTargetForm says what [ParseScaleTarget] reads.
const ScaleTargetForm = "RESOURCE.GROUP/NAME, such as statefulsets.apps/dynctl-decode"

// maxObjectName is the longest name of a Kubernetes object.
const maxObjectName = 253

// ParseScaleTarget reads the form RESOURCE.GROUP/NAME. An empty text is no target.
func ParseScaleTarget(text string) (t ScaleTarget, err error) {
	if text == "" {
		return t, nil
	}
	kind, name, named := strings.Cut(text, "/")
	resource, group, grouped := strings.Cut(kind, ".")
	if !named || !grouped || !isDNSName(resource) || !isDNSName(group) || !isDNSName(name) {
		return t, fmt.Errorf("%q is not of the form %s", text, ScaleTargetForm)
	}
	return ScaleTarget{Resource: resource, Group: group, Name: name}, nil
}

// isDNSName reports whether a text can name an object or a group: labels of letters, digits and hyphens,
// which neither begin nor end with a hyphen.
func isDNSName(text string) bool {
	if len(text) > maxObjectName {
		return false
	}
	for label := range strings.SplitSeq(text, ".") {
		if label == "" || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
	}
	return true
}

// String returns the form that [ParseScaleTarget] reads.
func (t ScaleTarget) String() string {
	if t == (ScaleTarget{}) {
		return ""
	}
	return t.Resource + "." + t.Group + "/" + t.Name
}
