// Package version says which build of the project is running.
//
// [String] is the whole of it. The version comes from the build information that
// the Go toolchain embeds; there is nothing to set at link time.
package version

import (
	"runtime/debug"
)

// String returns the module version of the running program, such as v0.3.0, or
// "devel" with the commit it was built from.
func String() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return describe(info)
}

func describe(info *debug.BuildInfo) string {
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	commit, dirty := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision" && len(s.Value) >= 12:
			commit = "-" + s.Value[:12]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "+dirty"
		}
	}
	return "devel" + commit + dirty
}
