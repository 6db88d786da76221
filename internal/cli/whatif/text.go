package whatif

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/dynctl/dynctl/internal/cli/declare"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/session"
	"github.com/dynctl/dynctl/internal/cli/term"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/topofile"
)

// Text simulates what an order to scale or to set a setting would change, for a screen: it writes nothing elsewhere.
func Text(ctx context.Context, s *session.Session, c *client.Cluster, order client.Action) (string, error) {
	revision, _, err := declare.Declared(ctx, c)
	if err != nil {
		return "", err
	}
	now := topofile.Of(revision)
	next := now.Clone()
	switch order.Kind {
	case client.ActScale:
		if order.Pool != "" {
			return "", fmt.Errorf("the load of the main pool alone is simulated, not that of pool %s", order.Pool)
		}
		err = client.Scaled(&next.Topology, "", order.Workers)
	case client.ActSet:
		err = next.Set(order.Setting+"="+order.Value, topofile.Source{})
	default:
		err = fmt.Errorf("%s changes no topology", order.Text())
	}
	if err != nil {
		return "", err
	}
	v, err := c.View(ctx)
	if err != nil {
		return "", err
	}
	var out, said bytes.Buffer
	printer, silent := *s.Out, *s
	printer.Format, printer.Streams = "table", term.Streams{In: s.Out.Streams.In, Out: &out, Err: &said}
	silent.Out = &printer
	if err := (&Options{}).Show(ctx, &silent, c, v, now, next); err != nil {
		var quiet exit.Silent
		if lines := strings.Split(strings.TrimSpace(said.String()), "\n"); errors.As(err, &quiet) {
			err = errors.New(lines[len(lines)-1])
		}
		return "", err
	}
	return aligned(out.String()), nil
}

// aligned turns tables of Markdown into columns.
func aligned(text string) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
	for line := range strings.Lines(text) {
		row, table := strings.CutPrefix(strings.TrimSpace(line), "|")
		switch {
		case table && strings.HasPrefix(row, "---"):
			continue
		case table:
			cells := strings.Split(strings.TrimSuffix(row, "|"), "|")
			for i := range cells {
				cells[i] = strings.TrimSpace(cells[i])
			}
			line = strings.Join(cells, "\t") + "\n"
		}
		_, _ = w.Write([]byte(line)) // it keeps it in memory
	}
	_ = w.Flush()
	return strings.TrimRight(b.String(), "\n")
}
