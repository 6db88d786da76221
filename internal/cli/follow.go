package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/dynctl/dynctl/internal/client"
)

// watchEvery is how often a watch asks for fresh load figures.
const watchEvery = time.Second

// follow prints a listing again and again: on a terminal over the last one, elsewhere
// the rows that changed, in JSON one document per line whenever something did. What
// cannot be reached for a while is told, and the last answer stays.
func (inv *invocation) follow(ctx context.Context, c *client.Cluster, l lister, names []string) error {
	w, err := c.Watch(ctx)
	if err != nil {
		return &failure{action: "cannot watch cluster " + c.Name, err: err}
	}
	defer w.Close()
	p := follower{inv: inv, seen: map[string]bool{}}
	last := answer{}
	first, away := true, false
	err = w.Until(ctx, watchEvery, func(v client.View) (bool, error) {
		found, err := l.list(ctx, scene{inv, c, v}, names)
		if ctx.Err() != nil { // half of the answers are missing
			return false, context.Cause(ctx)
		}
		if first && err != nil {
			return false, err
		}
		status := ""
		since, next, _ := w.Stale()
		switch now := inv.env.Now(); {
		case !since.IsZero():
			status = fmt.Sprintf("STALE %s: etcd unreachable, retry in %s", age(now.Sub(since)), age(next.Sub(now)))
		case err != nil:
			status = "STALE: " + err.Error()
		case found.gap != "":
			status = found.gap
		}
		if !inv.env.Streams.OutTTY && (status != "") != away {
			if away = status != ""; away {
				inv.warn("%s", status)
			} else {
				inv.note("everything answers again")
			}
		}
		if err == nil {
			last = found.answer
		}
		if first {
			if first = false; len(found.missing) > 0 {
				absent := inv.absent(l, found)
				if len(found.missing) == len(names) {
					return false, absent
				}
				inv.report(inv.cmd, absent)
			}
		}
		return false, p.print(last, status)
	})
	if ctx.Err() != nil {
		return &interrupted{text: "stopped watching", err: err}
	}
	var said *failure
	if errors.As(err, &said) {
		return err
	}
	return &failure{action: "cannot watch cluster " + c.Name, err: err}
}

// follower remembers what was printed.
type follower struct {
	inv   *invocation
	seen  map[string]bool // rows
	last  string
	lines int // on the terminal
}

func (p *follower) print(a answer, status string) error {
	inv := p.inv
	var b bytes.Buffer
	switch {
	case inv.quiet, inv.format == "name":
		for _, n := range a.names {
			fmt.Fprintln(&b, n)
		}
		return p.changedRows(b.String(), false)
	case inv.format == "json":
		if err := writeJSON(&b, a.data, false); err != nil {
			return err
		}
		return p.whole(b.String())
	case inv.format == "yaml":
		b.WriteString("---\n")
		if err := a.writeYAML(&b); err != nil {
			return err
		}
		return p.whole(b.String())
	}
	if err := a.table(inv.format == "wide").write(&b, inv.tableStyle()); err != nil {
		return err
	}
	if !inv.env.Streams.OutTTY {
		return p.changedRows(b.String(), true)
	}
	if status != "" {
		fmt.Fprintln(&b, inv.palette().Warn(status))
	}
	return p.redraw(b.String())
}

// whole prints a document if it differs from the last one.
func (p *follower) whole(text string) error {
	if text == p.last {
		return nil
	}
	p.last = text
	_, err := io.WriteString(p.inv.stdout(), text)
	return err
}

// changedRows appends the rows that were not the last of their kind.
func (p *follower) changedRows(text string, titled bool) error {
	now := map[string]bool{}
	for i, row := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		now[row] = true
		if row == "" || p.seen[row] || titled && i == 0 && len(p.seen) > 0 {
			continue
		}
		if _, err := fmt.Fprintln(p.inv.stdout(), row); err != nil {
			return err
		}
	}
	p.seen = now
	return nil
}

// redraw writes over what was written before, and nothing when nothing changed.
func (p *follower) redraw(text string) error {
	if text == p.last {
		return nil
	}
	p.last = text
	var b strings.Builder
	if p.lines > 0 {
		fmt.Fprintf(&b, "\x1b[%dA\x1b[J", p.lines)
	}
	_, height := p.inv.env.Streams.Size()
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if len(lines) > height-1 {
		hidden := len(lines) - height + 2
		lines = append(lines[:height-2], fmt.Sprintf("… %d more", hidden))
	}
	p.lines = len(lines)
	b.WriteString(strings.Join(lines, "\n") + "\n")
	_, err := p.inv.stdout().Write([]byte(b.String()))
	return err
}
