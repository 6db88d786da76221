package judge

import (
	"fmt"
	"strings"

	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
)

// Leases judges leases: their owners renew them when half of the time is gone.
func Leases(v client.View, p client.Probe) Finding {
	var late []string
	for _, l := range p.Leases {
		if l.Left < l.TTL/3 {
			late = append(late, fmt.Sprintf("%s has %.1fs of %.0fs left", l.Owner, l.Left.Seconds(), l.TTL.Seconds()))
		}
	}
	switch {
	case len(p.Gone) > 0:
		return Bad("dynctl logs "+p.Gone[0], "ended: %s", human.Names(p.Gone)).With("ended", p.Gone)
	case len(late) > 0:
		return poor("dynctl top --view leases", "not renewed in time: %s", strings.Join(late, ", "))
	case len(p.Leases) == 0 && p.Unasked > 0:
		return Bad("look at the store", "the store does not report them")
	case len(p.Leases) == 0:
		return Skipped("there are no leases")
	}
	first := p.Leases[0]
	text := fmt.Sprintf("%s, all renewed; the soonest to end, %s, has %.1fs of %.0fs left", human.Plural(len(p.Leases), "lease"), first.Owner, first.Left.Seconds(), first.TTL.Seconds())
	if p.Unasked > 0 {
		text += fmt.Sprintf("; %d not looked at", p.Unasked)
	}
	return good("%s", text).With("leases", len(p.Leases)).With("least_left_ms", human.Milliseconds(first.Left))
}

// Workers compares the workers that serve with the declared ones; start is how a node is
// started.
func Workers(v client.View, start string) Finding {
	t := v.Topology
	switch {
	case t != nil && t.Workers() > 0:
	case len(v.Nodes) == 0:
		return poor(start+", then dynctl up", "no topology is declared, and no node is up")
	default:
		return poor("dynctl up", "no topology is declared")
	}
	worst := OK
	var notes []string
	fix := ""
	ready := 0
	for _, w := range v.Workers() {
		note := w.Name + " " + string(w.State)
		if w.Reason != "" {
			note += ": " + w.Reason
		}
		switch w.State {
		case cluster.StateReady:
			ready++
			continue
		case cluster.StateFailed, cluster.StateLost:
			if worst != Fail {
				worst, fix = Fail, "dynctl logs "+w.Name
			}
		case cluster.StateSleeping:
			if worst == OK {
				worst, fix = Warn, "dynctl wake "+w.Name
			}
		case cluster.StateDraining, cluster.StateDrained:
			if worst == OK {
				worst, fix = Warn, "dynctl resume "+w.Name
			}
		case cluster.StateDegraded:
			ready++
			if worst == OK {
				worst, fix = Warn, "dynctl top"
			}
		default:
			if worst == OK {
				worst, fix = Warn, "dynctl ps -w"
			}
		}
		notes = append(notes, note)
	}
	want := t.Workers()
	text := fmt.Sprintf("%d of %s serve %s", ready, human.Plural(want, "worker"), strings.Join(t.ModelNames(), ", "))
	if ready < want && worst == OK {
		worst, fix = Warn, "dynctl ps"
	}
	if len(notes) > 0 {
		text += "; " + strings.Join(notes, "; ")
	}
	return Finding{Status: worst, Found: text, Fix: fix}.With("serving", ready).With("declared", want)
}
