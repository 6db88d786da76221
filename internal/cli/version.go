package cli

import (
	"context"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/version"
)

// buildInfo says which dynctl this is.
type buildInfo struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Modified bool   `json:"modified,omitempty"` // built from changed sources
	Time     string `json:"commit_time,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func buildVersion() buildInfo {
	v := buildInfo{Version: version.String(), Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Revision = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		case "vcs.time":
			v.Time = s.Value
		}
	}
	return v
}

func (f *factory) version() *cobra.Command {
	return f.command(verb{
		use: "version", short: "Print the version of dynctl", group: groupOther,
		examples: []string{
			"dynctl version",
			"dynctl version -o json   # with revision and platform",
			"dynctl ps --nodes -o wide   # versions of the agents",
		},
		run: func(_ context.Context, inv *invocation, _ []string) error {
			v := buildVersion()
			t := newTable("VERSION", "REVISION", "GO", "PLATFORM")
			t.add(v.Version, orDash(v.Revision), v.Go, v.Platform)
			return inv.answer(answer{data: v, table: func(bool) *table { return t }, names: []string{v.Version}})
		},
	})
}
