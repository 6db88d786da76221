package listing

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/cli/output"
	"github.com/dynctl/dynctl/internal/client"
)

// watchEvery is the interval at which a watch asks for fresh load figures.
const watchEvery = time.Second

// follow prints a listing again and again: on a terminal over the last one, elsewhere
// the rows that changed, in JSON one document per line whenever something did. What
// cannot be reached for a while is told, and the last answer stays.
func (o *Options) follow(ctx context.Context, c *client.Cluster) error {
	out := o.Session.Out
	w, err := c.WatchOf(ctx, o.of(c))
	if err != nil {
		return &exit.Failure{Action: "cannot watch cluster " + c.Name, Err: err}
	}
	defer w.Close()
	printed := out.Follow()
	last := output.Answer{}
	first, away := true, false
	err = w.Until(ctx, watchEvery, func(v client.View) (bool, error) {
		found, err := o.Kind.list(ctx, Scene{o.Session, c, v}, o.Names)
		if ctx.Err() != nil { // half of the answers are missing
			return false, context.Cause(ctx)
		}
		if first && err != nil {
			return false, err
		}
		status := o.stale(w, err, found.gap)
		if !out.Streams.OutTTY && (status != "") != away {
			if away = status != ""; away {
				out.Warn("%s", status)
			} else {
				out.Note("everything answers again")
			}
		}
		if err == nil {
			last = found.Answer
		}
		if first {
			if first = false; len(found.missing) > 0 {
				absent := o.absent(found)
				if len(found.missing) == len(o.Names) {
					return false, absent
				}
				out.Report(absent)
			}
		}
		return false, printed.Print(last, status)
	})
	if ctx.Err() != nil {
		return &exit.Stopped{Text: "stopped watching", Err: err}
	}
	var said *exit.Failure
	if errors.As(err, &said) {
		return err
	}
	return &exit.Failure{Action: "cannot watch cluster " + c.Name, Err: err}
}

// stale says why what is shown may be old; empty when it is not. err is that of the last
// listing, gap is what was missing from it.
func (o *Options) stale(w *client.Watch, err error, gap string) string {
	now := o.Session.Out.Now()
	if since, next, _ := w.Stale(); !since.IsZero() {
		return fmt.Sprintf("STALE %s: store unreachable, retry in %s", human.Age(now.Sub(since)), human.Age(next.Sub(now)))
	}
	if err != nil {
		return "STALE: " + err.Error()
	}
	return gap
}
