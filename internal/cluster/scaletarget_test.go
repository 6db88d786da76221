package cluster

import (
	"strings"
	"testing"
)

func TestParseScaleTarget(t *testing.T) {
	for text, want := range map[string]ScaleTarget{
		"":                                {},
		"statefulsets.apps/dynctl-decode": {"statefulsets", "apps", "dynctl-decode"},
		"dynamographdeploymentscalingadapters.nvidia.com/a.b-2": {"dynamographdeploymentscalingadapters", "nvidia.com", "a.b-2"},
	} {
		got, err := ParseScaleTarget(text)
		if err != nil || got != want || got.String() != text {
			t.Errorf("%q: %+v %v", text, got, err)
		}
	}
	for _, bad := range []string{
		"x", "statefulsets/x", "statefulsets.apps", "statefulsets.apps/", "/x", ".apps/x", "a./x", "a.b/x/scale", "a.b/X", "a.b/-x", "a.b/x-", "a.b/x..y",
		"a.b/" + strings.Repeat("x", 254), "a.b/x?y", "a.b/..", "a.b/\u00e4", "a.b/x y",
	} {
		if got, err := ParseScaleTarget(bad); err == nil || !strings.Contains(err.Error(), ScaleTargetForm) {
			t.Errorf("%q: %+v %v", bad, got, err)
		}
	}
}

func FuzzParseScaleTarget(f *testing.F) {
	f.Add("statefulsets.apps/dynctl-decode")
	f.Add("a.b/..")
	f.Fuzz(func(t *testing.T, text string) {
		if got, err := ParseScaleTarget(text); err == nil && got.String() != text {
			t.Errorf("%q is read as %q", text, got)
		}
	})
}
