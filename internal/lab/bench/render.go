package bench

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/dynctl/dynctl/internal/engine/cpu"
)

// JSON returns the report with all fields, indented.
func (r *Report) JSON() ([]byte, error) {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode report: %w", err)
	}
	return append(b, '\n'), nil
}

// Markdown returns the report as a Markdown document.
func (r *Report) Markdown() []byte {
	var b strings.Builder
	b.WriteString("# " + r.title() + "\n\n")
	fmt.Fprintf(&b, "Written by `%s`. Do not edit: run it again.\n\n", r.Run.Command)
	r.header(&b)
	b.WriteString("\nEach figure is the median of its repetitions, with the lowest and the highest in\n" +
		"parentheses. The cases of one table took turns, and a ratio is that of two cases in\n" +
		"the same round, which a busy machine disturbs less than it does absolute numbers.\n")
	if r.title() == "Benchmarks" {
		b.WriteString("\nThe CPU engine in real shapes, against the processor's limits and beside published figures:\n" +
			"[benchmarks-cpu.md](benchmarks-cpu.md), by `make bench-cpu`.\n")
	}
	if r.Run.LoadBefore > busyLoad {
		b.WriteString("\n**Other programs used the machine: speeds are too low and ranges too wide.**\n")
	}
	for _, s := range r.Sections {
		s.markdown(&b, r.Run.Plots)
	}
	return []byte(b.String())
}

// title returns the name of a report that has only one section, which is apart.
func (r *Report) title() string {
	if len(r.Sections) == 1 {
		for _, s := range sections() {
			if s.apart && s.name == r.Sections[0].Name {
				return "Benchmarks: " + r.Sections[0].Title
			}
		}
	}
	return "Benchmarks"
}

// busyLoad is the load average before a run from which the machine counts as used by
// others.
const busyLoad = 0.5

func (r *Report) header(b *strings.Builder) {
	load := "unknown"
	if r.Run.LoadBefore >= 0 {
		load = fmt.Sprintf("%.1f before the run, %.1f after it", r.Run.LoadBefore, r.Run.LoadAfter)
	}
	took := r.Run.Took.Round(time.Second).String()
	if r.Run.Quick {
		took += ", quick: smaller cases and fewer repetitions than a full run"
	}
	b.WriteString("| | |\n|---|---|\n")
	for _, line := range [][2]string{
		{"Processor", r.Host.CPU},
		{"Instructions", r.Host.ISA},
		{"Cores", fmt.Sprintf("%d, of which Go uses %d", r.Host.Cores, r.Host.Procs)},
		{"Memory", memoryText(r.Host.MemoryBytes)},
		{"System", r.Host.System},
		{"Go", r.Host.Go},
		{"Version", r.Run.Version},
		{"Date", r.Run.Started.UTC().Format("2006-01-02 15:04 MST")},
		{"Took", took},
		{"Load average", load},
		{"Command", "`" + r.Run.Command + "`"},
	} {
		fmt.Fprintf(b, "| %s | %s |\n", line[0], cell(line[1]))
	}
}

func memoryText(n int64) string {
	if n <= 0 {
		return "unknown"
	}
	return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
}

func (s Section) markdown(b *strings.Builder, plots string) {
	fmt.Fprintf(b, "\n## %s\n\n%s\n", s.Title, s.About)
	for _, t := range s.Tables {
		t.markdown(b)
	}
	fitsMarkdown(b, s.Fits)
	if plots != "" {
		for _, p := range s.Plots {
			fmt.Fprintf(b, "\n![%s](%s/%s.svg)\n", p.Title, plots, p.Name)
		}
	}
	if len(s.Notes)+len(s.Failures) > 0 {
		b.WriteString("\n")
	}
	for _, n := range s.Notes {
		fmt.Fprintf(b, "- %s\n", n)
	}
	for _, f := range s.Failures {
		fmt.Fprintf(b, "- **Failed**: %s\n", cell(f))
	}
}

func (t Table) markdown(b *strings.Builder) {
	fmt.Fprintf(b, "\n### %s\n\n", t.Name)
	if t.About != "" {
		b.WriteString(t.About + "\n\n")
	}
	b.WriteString("| |")
	for _, c := range t.Columns {
		b.WriteString(" " + cell(c.Title) + " |")
	}
	b.WriteString("\n|---|" + strings.Repeat("---:|", len(t.Columns)) + "\n")
	for _, r := range t.Rows {
		b.WriteString("| " + cell(r.Name) + " |")
		for _, c := range t.Columns {
			b.WriteString(" " + r.Figures[c.Key].String() + " |")
		}
		b.WriteString("\n")
	}
	b.WriteString("\n" + t.legend() + "\n")
}

// legend describes the number of repetitions and the meaning of the columns.
func (t Table) legend() string {
	var parts []string
	switch low, high := t.repetitions(); {
	case high == 0:
		parts = append(parts, "Nothing was measured.")
	case low != high:
		parts = append(parts, fmt.Sprintf("%d to %d repetitions.", low, high))
	case high == 1:
		parts = append(parts, "One repetition.")
	default:
		parts = append(parts, fmt.Sprintf("%d repetitions.", high))
	}
	for _, c := range t.Columns {
		if c.Help != "" {
			parts = append(parts, fmt.Sprintf("*%s*: %s.", c.Title, c.Help))
		}
	}
	return strings.Join(parts, " ")
}

// cell makes text safe inside a table.
func cell(s string) string {
	return strings.NewReplacer("|", "\\|", "\n", " ").Replace(s)
}

// Host describes the machine.
type Host struct {
	CPU         string `json:"cpu"`
	ISA         string `json:"isa"` // instruction set of the CPU backend
	Cores       int    `json:"cores"`
	Procs       int    `json:"gomaxprocs"`
	MemoryBytes int64  `json:"memory_bytes"` // 0 if unknown
	System      string `json:"system"`
	Go          string `json:"go"`
}

func thisHost() Host {
	name := cpuModel()
	if name == "" {
		name = "unknown"
	}
	d := cpu.NewDevice("cpu:0", 1)
	defer func() { _ = d.Close() }() // it did nothing
	return Host{
		CPU: name, ISA: d.ISA(), Cores: runtime.NumCPU(), Procs: runtime.GOMAXPROCS(0), MemoryBytes: totalMemory(),
		System: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version(),
	}
}
