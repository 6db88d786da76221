package cli

import (
	"context"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/cli/command"
	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/cli/output"
	"github.com/dynctl/dynctl/internal/cli/session"
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

func thisBuild() buildInfo {
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

// versionOptions print the version.
type versionOptions struct{ out *output.Printer }

func versionCommand(a *command.App) *cobra.Command {
	return a.Command(command.Verb{
		Use: "version", Short: "Print the version of dynctl", Group: command.GroupOther,
		Examples: []string{
			"dynctl version",
			"dynctl version -o json   # with revision and platform",
			"dynctl ps --nodes -o wide   # versions of the agents",
		},
		Options: func(s *session.Session, _ []string) command.Runner { return versionOptions{s.Out} },
	})
}

func (o versionOptions) Run(context.Context) error {
	v := thisBuild()
	t := output.NewTable("VERSION", "REVISION", "GO", "PLATFORM")
	t.Add(v.Version, human.OrDash(v.Revision), v.Go, v.Platform)
	return o.out.Answer(output.Answer{Data: v, Table: func(bool) *output.Table { return t }, Names: []string{v.Version}})
}
