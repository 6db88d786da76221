package cli

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/cli/term"
	"github.com/dynctl/dynctl/internal/cluster"
)

// doctorCommand looks for what is wrong with this machine and with the cluster.
type doctorCommand struct {
	port       int
	timeout    time.Duration
	modelCheck string // model that is asked for what it has read; empty: none
}

func (f *factory) doctor() *cobra.Command {
	o := &doctorCommand{}
	cmd := f.command(verb{
		use: "doctor", short: "Check this machine and the cluster, and say what to do", group: groupLook,
		long: `Checks what workers need of this machine, whether the cluster's services answer, the
leases, versions and clocks of its nodes, its workers, their model files and the paths of KV
blocks between them, each of which is tested, and its frontends, with an answer of two tokens. What cannot be known is not guessed: a check says ok, warn, fail, or skip
where there is nothing to check, as when no cluster runs.

--model-check also proves the transfer of KV blocks, by what answers say: every decode
worker is asked for facts out of prompts that each prefill worker has read in its place.
An answer can only be right if the right blocks arrived whole. The built-in model can
answer; another one is named with --model-check=NAME.

The exit code is 0 without failures, warnings or not, and 1 with one.`,
		examples: []string{
			"dynctl doctor",
			"dynctl doctor -q          # names of the checks that failed",
			"dynctl doctor --model-check -o json",
		},
		see: []string{"dynctl ps", "dynctl logs", "dynctl top"},
		run: o.run,
	})
	fs := cmd.Flags()
	fs.SortFlags = false
	countVar(fs, &o.port, "port", 8000, "port that a frontend of this machine would take")
	durationVar(fs, &o.timeout, "timeout", 10*time.Second, "how long each check may take")
	fs.StringVar(&o.modelCheck, "model-check", "", "ask the built-in model, or `NAME`, for facts that other workers have read")
	fs.Lookup("model-check").NoOptDefVal = cluster.BuiltinModelName
	return cmd
}

// Results of checks.
const (
	checkOK   = "ok"
	checkWarn = "warn"
	checkFail = "fail"
	checkSkip = "skip" // nothing to check
)

// finding is what one check has found.
type finding struct {
	Name   string         `json:"name"`
	Group  string         `json:"group"`
	Status string         `json:"status"`
	Found  string         `json:"found"`
	Fix    string         `json:"fix,omitempty"`
	Data   map[string]any `json:"data,omitempty"` // the numbers behind what was found
	TookMS float64        `json:"took_ms"`
}

// diagnosis is everything, as -o json prints it.
type diagnosis struct {
	Cluster string    `json:"cluster"`
	Checks  []finding `json:"checks"`
	OK      int       `json:"ok"`
	Warned  int       `json:"warned"`
	Failed  int       `json:"failed"`
	Skipped int       `json:"skipped"`
}

// check is one question; several findings may come of it.
type check struct {
	name, group string
	run         func(context.Context) finding
}

func (o *doctorCommand) run(ctx context.Context, inv *invocation, _ []string) error {
	switch {
	case o.port < 1 || o.port > 65535:
		return &usageError{text: fmt.Sprintf("--port: %d is not between 1 and 65535", o.port)}
	case o.timeout <= 0:
		return &usageError{text: "--timeout: must be more than nothing"}
	}
	d := diagnosis{Cluster: inv.cfg.Cluster}
	var machine, rest []finding
	var wg sync.WaitGroup
	wg.Go(func() { machine = examine(ctx, o.timeout, o.machineChecks(inv)) })
	wg.Go(func() { rest = o.clusterFindings(ctx, inv) })
	wg.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	d.Checks = append(machine, rest...)
	a := answer{data: &d, table: func(wide bool) *table { return checksTable(d.Checks, wide) }}
	for _, f := range d.Checks {
		switch f.Status {
		case checkOK:
			d.OK++
		case checkWarn:
			d.Warned++
		case checkSkip:
			d.Skipped++
		default:
			d.Failed++
			a.names = append(a.names, f.Name)
		}
	}
	if inv.prose() && inv.env.Streams.OutTTY {
		a.table, a.text = nil, inv.diagnosisText(d)
	}
	if err := inv.answer(a); err != nil {
		return err
	}
	if d.Failed > 0 {
		return silent{exitFailed}
	}
	return nil
}

// examine runs checks side by side, each with a deadline of its own.
func examine(ctx context.Context, timeout time.Duration, checks []check) []finding {
	out := make([]finding, len(checks))
	var wg sync.WaitGroup
	for i, c := range checks {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, timeout)
			defer cancel()
			begin := time.Now()
			out[i] = c.run(ctx)
			out[i].Name, out[i].Group, out[i].TookMS = c.name, c.group, milliseconds(time.Since(begin))
		})
	}
	wg.Wait()
	return out
}

// good, poor, bad and skipped make findings.
func good(format string, args ...any) finding {
	return finding{Status: checkOK, Found: fmt.Sprintf(format, args...)}
}

func poor(fix, format string, args ...any) finding {
	return finding{Status: checkWarn, Fix: fix, Found: fmt.Sprintf(format, args...)}
}

func bad(fix, format string, args ...any) finding {
	return finding{Status: checkFail, Fix: fix, Found: fmt.Sprintf(format, args...)}
}

func skipped(format string, args ...any) finding {
	return finding{Status: checkSkip, Found: fmt.Sprintf(format, args...)}
}

// with adds a number to a finding.
func (f finding) with(key string, value any) finding {
	if f.Data == nil {
		f.Data = map[string]any{}
	}
	f.Data[key] = value
	return f
}

func checksTable(checks []finding, wide bool) *table {
	titles := []string{"GROUP", "CHECK", "STATUS", "~FOUND", "~FIX"}
	if wide {
		titles = append(titles, ">TOOK")
	}
	t := newTable(titles...)
	for _, f := range checks {
		row := []string{f.Group, f.Name, f.Status, f.Found, orDash(f.Fix)}
		if wide {
			row = append(row, fmt.Sprintf("%.1fms", f.TookMS))
		}
		t.add(row...)
	}
	return t
}

// diagnosisText is the list as people read it on a terminal.
func (inv *invocation) diagnosisText(d diagnosis) string {
	p := inv.palette()
	width := 0
	for _, f := range d.Checks {
		width = max(width, term.Width(f.Name))
	}
	var b strings.Builder
	group := ""
	for _, f := range d.Checks {
		if f.Group != group {
			if group != "" {
				b.WriteString("\n")
			}
			group = f.Group
			fmt.Fprintf(&b, "%s\n", p.Bold(group))
		}
		mark, paint := checkLook(f.Status, p)
		status := ""
		if f.Status != checkOK {
			status = f.Status + ": "
		}
		fmt.Fprintf(&b, "  %s %s  %s%s\n", paint(mark), term.PadRight(f.Name, width), paint(status), term.Clean(f.Found))
		if f.Fix != "" {
			fmt.Fprintf(&b, "    %s  try: %s\n", strings.Repeat(" ", width), term.Clean(f.Fix))
		}
	}
	parts := []string{fmt.Sprintf("%d ok", d.OK), plural(d.Warned, "warning"), plural(d.Failed, "failure")}
	if d.Skipped > 0 {
		parts = append(parts, fmt.Sprintf("%d skipped", d.Skipped))
	}
	fmt.Fprintf(&b, "\n%s\n", strings.Join(parts, ", "))
	return b.String()
}

func checkLook(status string, p term.Palette) (mark string, paint func(string) string) {
	switch status {
	case checkOK:
		return "✓", p.Good
	case checkWarn:
		return "▲", p.Warn
	case checkSkip:
		return "·", p.Dim
	}
	return "✗", p.Bad
}
