package simulation

import (
	"fmt"
	"io"
	"strings"
	"time"

	autoscalers "github.com/dynctl/dynctl/internal/lab/planner"
	"github.com/dynctl/dynctl/internal/planner"
	"github.com/dynctl/dynctl/internal/simulate"
)

// Planned is a simulation under the planner.
type Planned struct {
	Autoscaler *Autoscaler
	Decisions  []planner.Decision // that change something
}

// Plan puts the planner in charge of a simulation, with a budget of devices; 0: those of its workers.
func Plan(c *simulate.Config, budget int) (*Planned, error) {
	cfg := PlannerConfig(*c, budget)
	if budget == 0 {
		cfg.Devices = cfg.DevicesOf(planner.Plan{Prefill: c.Prefill, Decode: c.Decode})
	}
	setup := Setup(*c, cfg)
	if !cfg.Fits(setup.Initial) {
		return nil, fmt.Errorf("%s needs %d devices, the budget has %d", setup.Initial, cfg.DevicesOf(setup.Initial), cfg.Devices)
	}
	ours, err := autoscalers.NewOurs(setup)
	if err != nil {
		return nil, err
	}
	p := &Planned{Autoscaler: &Autoscaler{Policy: ours, Config: cfg, MaxLocalPrefill: c.Disagg.MaxLocalTokens}}
	ours.Seen = func(d planner.Decision) {
		if d.Changes() {
			p.Decisions = append(p.Decisions, d)
		}
	}
	c.Controller, c.Tick = p.Autoscaler, cfg.LoadInterval
	return p, nil
}

// Show prints what the planner did and why, and the workers over time.
func (p *Planned) Show(out io.Writer, r *simulate.Result) error {
	var b strings.Builder
	fmt.Fprintf(&b, "\nThe planner changed the workers %d times. They had at most %d of %d devices.\n", len(p.Decisions), p.Autoscaler.Held, p.Autoscaler.Config.Devices)
	if len(p.Decisions) > 0 {
		b.WriteString("\n| time | change and cause | requests/s to carry | predicted misses |\n|---:|---|---:|---:|\n")
	}
	for _, d := range p.Decisions {
		rate, miss := "-", "-"
		if v, ok := d.Number(planner.ReasonPlannedRate); ok {
			rate = fmt.Sprintf("%.1f", v)
		}
		for _, c := range d.Candidates {
			if c.Plan == d.Proposal {
				miss = fmt.Sprintf("%.1f %%", 100*c.Outcome.Miss)
			}
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", d.Time.Sub(clock(0)).Round(time.Second), d.Lines()[0], rate, miss)
	}
	b.WriteString("\n| until | requests | prefill | decode | others | TTFT p95 | ITL p95 |\n|---:|---:|---:|---:|---:|---:|---:|\n")
	for _, x := range r.Series {
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %d | %s ms | %s ms |\n", time.Duration(x.AtS*float64(time.Second)).Round(time.Second), x.Arrivals, x.Prefill, x.Decode, x.Other, round(x.TTFT95), round(x.TPOT95))
	}
	_, err := io.WriteString(out, b.String())
	return err
}
