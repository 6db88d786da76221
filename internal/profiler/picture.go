package profiler

import (
	"fmt"
	"io"

	"github.com/dynctl/dynctl/internal/bench"
)

// SVG draws the points: time to the first token by the length of the prompt, and time between
// tokens by the use of the KV pool, with a line for each context.
func SVG(w io.Writer, of Subject, measured []Measurement) error {
	prompts := bench.Curve{Line: true}
	for _, m := range sorted(measured, Prefill) {
		prompts.Xs, prompts.Ys = append(prompts.Xs, float64(m.Prompt-m.Cached)), append(prompts.Ys, 1e3*m.Seconds)
	}
	decode := bench.Chart{Title: "ITL by use of the KV pool, ms", Across: "% of the pool"}
	row := 0
	for _, m := range sorted(measured, Decode) {
		if n := len(decode.Curves); n == 0 || m.Tokens != row {
			decode.Curves = append(decode.Curves, bench.Curve{Name: fmt.Sprintf("context %d", m.Tokens), Line: true})
			row = m.Tokens
		}
		c := &decode.Curves[len(decode.Curves)-1]
		c.Xs, c.Ys = append(c.Xs, 100*m.Use(of.Limits)), append(c.Ys, 1e3*m.Seconds)
	}
	return bench.WriteCharts(w, of.Model+" · "+of.Server,
		bench.Chart{Title: "TTFT by length of the prompt, ms", Across: "tokens", Curves: []bench.Curve{prompts}}, decode)
}
