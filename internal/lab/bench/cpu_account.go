package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/dynctl/dynctl/internal/engine/cpu"
)

// account adds a table with the share of each operator in a step.
func (g *cpuGroup) account(ctx context.Context) error {
	t := Table{
		Name: "Operators: " + g.title,
		About: "Percent of the time of all operators, as the goroutine that leads the step sees it: waiting\n" +
			"for the other workers is in it.",
	}
	rows := map[string]Row{}
	for _, c := range g.cases {
		stop := g.rig.device.AccountOperators()
		_, err := c.Run(ctx)
		spent := stop()
		if err != nil {
			return fmt.Errorf("account for %s: %w", c.Name, err)
		}
		var total time.Duration
		for _, o := range spent {
			total += o.Time
		}
		t.Columns = append(t.Columns, Column{c.id, c.id, ""})
		for _, o := range spent {
			if _, ok := rows[o.Operator]; !ok {
				rows[o.Operator] = Row{o.Operator, map[string]Figure{}}
			}
			rows[o.Operator].Figures[c.id] = constant(float64(o.Time) / float64(total) * 100)
		}
	}
	for _, name := range cpu.Operators() {
		if r, ok := rows[name]; ok {
			t.Rows = append(t.Rows, r)
		}
	}
	g.operators = &t
	return nil
}

// measurePauses runs the longest prompt up to 512 tokens and a decode window while the
// garbage collector is forced to run continuously.
func (g *cpuGroup) measurePauses(ctx context.Context) error {
	sc := g.scale.cpu
	g.say("cpu, %s: pauses of the collector", g.title)
	prompt := sc.prefill[0]
	for _, n := range sc.prefill {
		if n <= 512 {
			prompt = max(prompt, n)
		}
	}
	for _, c := range []struct {
		name string
		run  func() (Sample, error)
	}{
		{fmt.Sprintf("prefill, %d tokens", prompt), func() (Sample, error) { return g.rig.prefillRate(ctx, prompt) }},
		{"decode, 1 sequence", func() (Sample, error) {
			return g.rig.decodeRate(ctx, decoding{seqs: 1, steps: sc.steps, window: sc.window})
		}},
	} {
		s, err := whileCollecting(ctx, func() error { _, err := c.run(); return err })
		if err != nil {
			return fmt.Errorf("pauses of %s, %s: %w", g.title, c.name, err)
		}
		row := Row{g.title + ": " + c.name, map[string]Figure{}}
		for key, v := range s {
			if f := Summarize([]float64{v}); f.Repetitions > 0 {
				row.Figures[key] = f
			}
		}
		g.cpuSection.pauses = append(g.cpuSection.pauses, row)
	}
	return nil
}

func (c *cpuSection) pauseTable() Table {
	return Table{
		Name: "Pauses of the collector",
		About: fmt.Sprintf("While collections are forced every %s: a pause waits for kernels, which cannot be preempted.",
			collectEvery),
		Columns: pauseColumns(), Rows: c.pauses,
	}
}
