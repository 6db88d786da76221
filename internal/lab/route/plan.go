package route

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/dynctl/dynctl/internal/router"
)

// Workload is a named list of requests.
type Workload struct {
	Name     string
	Requests []Request
}

// Plan says what to compare.
type Plan struct {
	Workloads []Workload
	Generate  []string // names of those to generate
	Workers   []int
	// Prefill are numbers of prefill workers among Workers. If there are any, the rules of
	// conditional disaggregation are compared in place of policies.
	Prefill []int
	// Frontends are numbers of frontends, Syncs the delays with which several hear of each
	// other; 0 for not at all.
	Frontends []int
	Syncs     []time.Duration

	Blocks   []int
	Speeds   []float64
	Policies []string
	Tune     bool
	Knee     bool
	Seed     uint64
	// Plot, if set, gets a chart of the TTFT over the speeds for each fleet, as SVG.
	Plot io.Writer

	panels []*panel
}

// Run plays all combinations and prints a table for each workload and fleet.
func (p *Plan) Run(out io.Writer) error {
	if len(p.Prefill) > 0 {
		return p.runFleets(out)
	}
	contenders := append([]Contender{Own()}, Opponents()...)
	for _, name := range p.Policies {
		if !slices.ContainsFunc(contenders, func(c Contender) bool { return c.Name == name }) {
			return fmt.Errorf("unknown policy %q", name)
		}
	}
	for _, w := range p.Workloads {
		for _, workers := range p.Workers {
			for _, blocks := range p.Blocks {
				lru, belady := Ideal(w.Requests, workers*blocks)
				p.print(out, "\n%s: %d requests, %d workers of %d blocks; one pooled cache reuses %.1f %%, with Belady's eviction %.1f %%\n", w.Name, len(w.Requests), workers, blocks, 100*lru, 100*belady)
				p.panels = append(p.panels, &panel{title: fmt.Sprintf("%s: TTFT p90, %d workers of %d blocks", w.Name, workers, blocks)})
				c := Config{Requests: w.Requests, Workers: workers, Blocks: blocks, Timing: H100}
				for _, c.Frontends = range p.Frontends {
					for i := range p.Syncs {
						if c.SyncDelay = p.Syncs[i]; i > 0 && c.Frontends <= 1 {
							break // it has nobody to hear of
						}
						if err := p.table(out, c, contenders, lru); err != nil {
							return err
						}
					}
				}
			}
		}
	}
	if p.Plot != nil {
		return plot(p.Plot, p.panels)
	}
	return nil
}

// table prints the table of one fleet.
func (p *Plan) table(out io.Writer, c Config, contenders []Contender, ideal float64) error {
	switch {
	case c.Frontends > 1 && c.SyncDelay > 0:
		p.print(out, "\n%d frontends, which hear of each other after %s\n", c.Frontends, c.SyncDelay)
	case c.Frontends > 1:
		p.print(out, "\n%d frontends, which do not hear of each other\n", c.Frontends)
	}
	p.print(out, "\n| policy | settings | speed | reuse | of ideal | max/mean | TTFT p50 | p90 | p99 | preempted | us/decision |\n|---|---|---|---|---|---|---|---|---|---|---|\n")
	for _, k := range contenders {
		if len(p.Policies) > 0 && !slices.Contains(p.Policies, k.Name) {
			continue
		}
		if err := p.compare(out, c, k, ideal); err != nil {
			return err
		}
	}
	return nil
}

// compare prints the lines of one policy.
func (p *Plan) compare(out io.Writer, c Config, k Contender, ideal float64) error {
	settings := k.Settings
	if !p.Tune {
		settings = settings[:1]
	}
	for _, speed := range p.Speeds {
		c.Speed = speed
		r, with, err := best(c, settings)
		if err != nil {
			return err
		}
		p.panels[len(p.panels)-1].add(k.Name, speed, r.P90.Seconds())
		p.print(out, "| %s | %s | %g | %.1f %% | %.0f %% | %.2f | %s | %s | %s | %d | %.0f |\n", k.Name, with, speed, 100*r.Reuse(), 100*r.Reuse()/max(1e-9, ideal), r.Balance,
			short(r.P50), short(r.P90), short(r.P99), r.Preempted, float64(r.Decision.Nanoseconds())/1e3)
	}
	if !p.Knee {
		return nil
	}
	speed, with, err := Knee(c, settings)
	if err != nil {
		return err
	}
	p.print(out, "| %s | %s | **%.2f** | knee | | | | | | | |\n", k.Name, with, speed)
	return nil
}

// best returns the result of the settings with the lowest p90.
func best(c Config, settings []router.Policy) (least Result, with string, err error) {
	for i, s := range settings {
		c.Policy = s
		r, err := Play(c)
		if err != nil {
			return least, "", err
		}
		if i == 0 || r.P90 < least.P90 {
			least, with = r, s.Name()
		}
	}
	if len(settings) == 1 {
		with = "default"
	}
	return least, with, nil
}

// kneeLimit is the time in which 90 % of first tokens come below the knee.
const kneeLimit = 2 * time.Second

// Knee returns the highest speed, to 3 %, at which 90 % of first tokens come in time,
// with the settings that reach it.
func Knee(c Config, settings []router.Policy) (knee float64, with string, err error) {
	for _, s := range settings {
		c.Policy = s
		serves := func(speed float64) (bool, error) {
			c.Speed = speed
			r, err := Play(c)
			return r.P90 < kneeLimit, err
		}
		low, high := 0.0, max(knee, 1.0)
		for {
			ok, err := serves(high)
			if err != nil {
				return 0, "", err
			}
			if !ok {
				break
			}
			low, high = high, 1.5*high
		}
		if low == 0 && knee > 0 {
			continue // other settings are better
		}
		for high > max(1.03*low, 0.02) { // a workload that no speed serves has knee 0
			middle := (low + high) / 2
			ok, err := serves(middle)
			if err != nil {
				return 0, "", err
			}
			if ok {
				low = middle
			} else {
				high = middle
			}
		}
		if low > knee {
			knee, with = low, s.Name()
		}
	}
	return knee, with, nil
}

func (p *Plan) print(out io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(out, format, args...) // a failed write has no other place to be reported
}

func short(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%.3f s", d.Seconds())
	}
	return fmt.Sprintf("%.2f s", d.Seconds())
}
