package gpucheck

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
)

// Report is a summary of results, as Markdown.
func Report(results []Result) []byte {
	var b bytes.Buffer
	b.WriteString("# Check of CUDA kernels\n\n")
	if len(results) == 0 {
		b.WriteString("There are no results.\n")
		return b.Bytes()
	}
	writeAbout(&b, results)
	writeCounts(&b, results)
	writeTrouble(&b, results)
	writeFigures(&b, results)
	return b.Bytes()
}

// writeAbout says on what the results were found: more than one line if that changed.
func writeAbout(b *bytes.Buffer, results []Result) {
	var seen []string
	for _, r := range results {
		if r.Device == "" {
			continue
		}
		text := joined(r.Device, "compute capability "+r.Capability, "CUDA "+r.CUDA)
		if r.Driver != "" {
			text += ", driver " + r.Driver
		}
		text += ", by " + r.Build
		if r.Sources != "" {
			text += ", kernels compiled by " + r.Sources
		}
		if !slices.Contains(seen, text) {
			seen = append(seen, text)
		}
	}
	for _, s := range seen {
		fmt.Fprintf(b, "- %s\n", s)
	}
	from, to := results[0].Date, results[0].Date
	for _, r := range results {
		if r.Date.Before(from) {
			from = r.Date
		}
		if r.Date.After(to) {
			to = r.Date
		}
	}
	fmt.Fprintf(b, "- %s to %s\n", from.Format("2006-01-02 15:04 MST"), to.Format("2006-01-02 15:04 MST"))
	if slices.ContainsFunc(results, func(r Result) bool { return r.Pretended }) {
		b.WriteString("\n**Results of a pretended driver are among these: a rehearsal, whose times mean nothing.**\n")
	}
	b.WriteString("\n")
}

func writeCounts(b *bytes.Buffer, results []Result) {
	ends := []Outcome{Passed, Failed, Hung, Lost, Crashed, Skipped}
	count := map[string]map[Outcome]int{}
	var phases []string
	for _, r := range results {
		if count[r.Phase] == nil {
			count[r.Phase] = map[Outcome]int{}
			phases = append(phases, r.Phase)
		}
		count[r.Phase][r.End]++
	}
	b.WriteString("| phase |")
	for _, e := range ends {
		fmt.Fprintf(b, " %s |", e)
	}
	b.WriteString("\n|---|" + strings.Repeat("---:|", len(ends)) + "\n")
	for _, p := range phases {
		fmt.Fprintf(b, "| %s |", p)
		for _, e := range ends {
			fmt.Fprintf(b, " %d |", count[p][e])
		}
		b.WriteString("\n")
	}
}

// writeTrouble lists what did not pass, and what else is worth a look.
func writeTrouble(b *bytes.Buffer, results []Result) {
	var lines, why []string
	left := map[string][]string{} // out, by reason
	for _, r := range results {
		switch {
		case r.End == Skipped:
			if left[r.Why] == nil {
				why = append(why, r.Why)
			}
			left[r.Why] = append(left[r.Why], r.Case)
		case r.End != Passed:
			lines = append(lines, fmt.Sprintf("- %s `%s`: %s", r.End, r.Case, strings.ReplaceAll(r.Why, "\n", "; ")))
		case strings.HasPrefix(r.Case, "smoke/load/") && slices.ContainsFunc(r.Notes, func(n string) bool { return strings.Contains(n, " takes ") }):
			lines = append(lines, fmt.Sprintf("- `%s`: %s", r.Case, strings.Join(r.Notes, "; ")))
		case len(r.Throttled) > 0:
			lines = append(lines, fmt.Sprintf("- `%s` ran while clocks were lowered: %s", r.Case, strings.Join(r.Throttled, ", ")))
		}
	}
	for _, w := range why {
		lines = append(lines, fmt.Sprintf("- left out, %d cases such as `%s`: %s", len(left[w]), left[w][0], strings.ReplaceAll(w, "\n", "; ")))
	}
	if len(lines) > 0 {
		b.WriteString("\n## What to look at\n\n" + strings.Join(lines, "\n") + "\n")
	}
}

// otherPhase is of results that another program has found for the same shapes.
const otherPhase = "torch"

// writeFigures lists what was measured, beside what others made of the same.
func writeFigures(b *bytes.Buffer, results []Result) {
	by := map[string]Result{}
	var rows []Result
	for _, r := range results {
		if r.Unit == "" || r.End != Passed {
			continue
		}
		by[r.Case] = r
		if r.Phase != otherPhase && !strings.HasPrefix(r.Case, "measure/cublaslt/") {
			rows = append(rows, r)
		}
	}
	if len(rows) == 0 {
		return
	}
	b.WriteString("\n## Figures\n\nMedians of five samples or more, by the device's clock; those of the phase engine by the host's.")
	if rates := ratesIn(rows); rates != nil {
		fmt.Fprintf(b, " The floor is what bytes take at %.3g GB/s", rates.BytesPerSecond/1e9)
		if rates.FLOPPerSecond > 0 {
			fmt.Fprintf(b, " and operations at %.3g TFLOP/s", rates.FLOPPerSecond/1e12)
		}
		fmt.Fprintf(b, " (%s).", rates.From)
	}
	b.WriteString("\n\n```\n")
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "figure\t\tof floor\tGB/s\tTFLOP/s\ttokens/s\tcuBLASLt\tPyTorch\tMHz\tW\t  case\n")
	for _, r := range rows {
		name := strings.TrimPrefix(r.Case, "measure/")
		fmt.Fprintf(w, "%.4g\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t  %s\n", r.Figure, r.Unit, percent(r.FloorPercent), figure(r.Also["gb_per_s"]), figure(r.Also["tflop_per_s"]),
			figure(r.Also["tokens_per_s"]), figure(by["measure/"+cublasName(name)].Figure), figure(by[torchName(name)].Figure), number(r.ClockMHz), number(r.PowerWatts), name)
	}
	_ = w.Flush() // into memory
	b.WriteString("```\n")
}

func ratesIn(rows []Result) *Rates {
	for _, r := range rows {
		if r.Rates != nil {
			return r.Rates
		}
	}
	return nil
}

func percent(v float64) string {
	if v == 0 {
		return ""
	}
	return fmt.Sprintf("%.0f %%", v)
}

func figure(v float64) string {
	if v == 0 {
		return ""
	}
	return fmt.Sprintf("%.4g", v)
}

func number[T int | float64](v *T) string {
	if v == nil {
		return ""
	}
	return fmt.Sprintf("%.0f", float64(*v))
}
