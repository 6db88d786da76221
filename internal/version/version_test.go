package version

import (
	"runtime/debug"
	"testing"
)

func TestDescribe(t *testing.T) {
	build := func(version string, settings ...debug.BuildSetting) *debug.BuildInfo {
		return &debug.BuildInfo{Main: debug.Module{Version: version}, Settings: settings}
	}
	commit := debug.BuildSetting{Key: "vcs.revision", Value: "0123456789abcdef0123456789abcdef01234567"}
	dirty := debug.BuildSetting{Key: "vcs.modified", Value: "true"}
	clean := debug.BuildSetting{Key: "vcs.modified", Value: "false"}
	for _, tc := range []struct {
		name string
		info *debug.BuildInfo
		want string
	}{
		{"release", build("v0.3.0", commit), "v0.3.0"},
		{"between releases", build("v0.3.1-0.20260701120000-0123456789ab+dirty"), "v0.3.1-0.20260701120000-0123456789ab+dirty"},
		{"working tree", build("(devel)", commit, clean), "devel-0123456789ab"},
		{"changed working tree", build("(devel)", commit, dirty), "devel-0123456789ab+dirty"},
		{"no version control", build(""), "devel"},
		{"short revision", build("", debug.BuildSetting{Key: "vcs.revision", Value: "1"}), "devel"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := describe(tc.info); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
	if String() == "" {
		t.Error("this build has no version")
	}
}
