package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"
)

// report collects results for docs/reliability.md.
type report struct {
	bound   time.Duration
	seconds int
	all     []*result
}

func (r *report) add(res *result) {
	res.bound = r.bound
	r.all = append(r.all, res)
}

func (r *report) ok() bool {
	return !slices.ContainsFunc(r.all, func(res *result) bool { return res.skipped == "" && len(res.faults()) > 0 })
}

// faults are all reasons for which the service did not hold.
func (r *result) faults() (out []string) {
	if r.err != nil {
		out = append(out, r.err.Error())
	}
	if len(r.failed) > 0 {
		out = append(out, fmt.Sprintf("%d requests failed, the first: %s", len(r.failed), r.failed[0]))
	}
	if len(r.wrong) > 0 {
		out = append(out, fmt.Sprintf("%d streams were wrong, the first: %s", len(r.wrong), r.wrong[0]))
	}
	if len(r.lost) > 0 {
		out = append(out, "lost "+strings.Join(r.lost, ", "))
	}
	if r.seen.in > 0 {
		out = append(out, fmt.Sprintf("%d times an attacker was not refused", r.seen.in))
	}
	if p := r.percentile(0.99); p > r.bound {
		out = append(out, fmt.Sprintf("p99 %s is above %s", p.Round(time.Millisecond), r.bound))
	}
	return out
}

func (r *result) percentile(q float64) time.Duration {
	if len(r.latencies) == 0 {
		return 0
	}
	slices.Sort(r.latencies)
	return r.latencies[min(int(q*float64(len(r.latencies))), len(r.latencies)-1)]
}

func mib(n int64) string { return fmt.Sprintf("%d", n>>20) }

func ms(d time.Duration) string { return fmt.Sprintf("%d", d.Milliseconds()) }

// line says in one line what came of it.
func (r *result) line() string {
	if r.skipped != "" {
		return fmt.Sprintf("%-36s skipped: %s", r.name, r.skipped)
	}
	verdict := "held"
	if f := r.faults(); len(f) > 0 {
		verdict = "DID NOT HOLD: " + strings.Join(f, "; ")
	}
	return fmt.Sprintf("%-36s asked %d failed %d p50 %s p99 %s max %s ms; streams %d wrong %d; MiB %s peak %s after %s; %s; %s",
		r.name, len(r.latencies)+len(r.failed), len(r.failed), ms(r.percentile(0.5)), ms(r.percentile(0.99)), ms(r.percentile(1)),
		r.streams, len(r.wrong), mib(r.before), mib(r.peak), mib(r.afterwards), r.seen, verdict)
}

const (
	tableBegin = "<!-- attack: begin -->"
	tableEnd   = "<!-- attack: end -->"
)

// write replaces the table in a page.
func (r *report) write(path string) error {
	page, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	head, rest, ok := strings.Cut(string(page), tableBegin)
	_, tail, ok2 := strings.Cut(rest, tableEnd)
	if !ok || !ok2 {
		return fmt.Errorf("%s has no lines %s and %s", path, tableBegin, tableEnd)
	}
	return os.WriteFile(path, []byte(head+tableBegin+"\n"+r.table()+tableEnd+tail), 0o644)
}

func (r *report) table() string {
	var b strings.Builder
	commit := "unknown"
	if out, err := exec.Command("git", "rev-parse", "--short", "HEAD").Output(); err == nil {
		commit = strings.TrimSpace(string(out))
	}
	fmt.Fprintf(&b, "\nMade by `go run ./internal/lab/attack` at commit %s on %s: %d processors, each attack %d seconds.\n\n", commit, time.Now().UTC().Format(time.DateOnly), runtime.NumCPU(), r.seconds)
	b.WriteString("| what happens | tried | asked | failed | p50 ms | p99 ms | max ms | streams | wrong | memory before, peak, after in MiB |\n|---|---|---|---|---|---|---|---|---|---|\n")
	for _, res := range r.all {
		if res.skipped != "" {
			fmt.Fprintf(&b, "| %s | not here: %s | | | | | | | | |\n", res.what, res.skipped)
			continue
		}
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %s | %s | %s | %d | %d | %s, %s, %s |\n", res.what, res.seen.tried, len(res.latencies)+len(res.failed), len(res.failed),
			ms(res.percentile(0.5)), ms(res.percentile(0.99)), ms(res.percentile(1)), res.streams, len(res.wrong), mib(res.before), mib(res.peak), mib(res.afterwards))
	}
	b.WriteString("\nWhat the attackers were told:\n\n")
	for _, res := range r.all {
		if res.skipped == "" && res.seen.tried > 0 {
			fmt.Fprintf(&b, "- %s: %s.\n", res.name, res.seen)
		}
	}
	b.WriteString("\n")
	return b.String()
}
