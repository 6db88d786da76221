package explain

import (
	"fmt"
	"strings"
	"time"

	"github.com/dynctl/dynctl/internal/cli/fleet"
	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/cli/output"
	"github.com/dynctl/dynctl/internal/cli/session"
	"github.com/dynctl/dynctl/internal/cli/term"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/planner"
)

// Explanation says how something stands and why, since when, and what comes next.
type Explanation struct {
	Kind  string     `json:"kind"` // worker, node, lease or planner
	Name  string     `json:"name"`
	State string     `json:"state"`
	Why   string     `json:"why"`
	Since *time.Time `json:"since"` // null if nobody knows
	Next  string     `json:"next"`
	Try   []string   `json:"try"` // commands that change it, or tell more

	// One of these is set, by Kind.
	Worker *cluster.Worker `json:"worker,omitempty"`
	Node   *fleet.NodeRow  `json:"node,omitempty"`
	Lease  *leaseFacts     `json:"lease,omitempty"`
	// Planner is the newest decision; absent if there is none, or the planner is off.
	Planner *planner.Report `json:"planner,omitempty"`
	// Pools are the explanations of the planner for further pools.
	Pools []*Explanation `json:"pools,omitempty"`

	// Activity lists the requests and transfers of a worker; null while it is not up.
	Activity *cluster.Activity `json:"activity,omitempty"`

	needsNode bool // another node would help; how to start one goes before Try
	mark      string
	paint     func(string) string
	facts     []fact
}

// fact is one more thing to know, for people.
type fact struct{ name, text string }

func (x *Explanation) fact(name, format string, args ...any) {
	x.facts = append(x.facts, fact{name, fmt.Sprintf(format, args...)})
}

// since sets when the present state began; a time that is not known stays unknown.
func (x *Explanation) since(t time.Time) {
	if !t.IsZero() {
		x.Since = &t
	}
}

// lines are the explanation in the order in which people ask.
func (x *Explanation) lines(now time.Time, tty bool) []fact {
	since := "-"
	switch {
	case x.Since == nil:
	case tty:
		since = fmt.Sprintf("%s (%s ago)", x.Since.Local().Format("2006-01-02 15:04:05"), human.Age(now.Sub(*x.Since)))
	default:
		since = x.Since.UTC().Format(time.RFC3339)
	}
	out := []fact{{x.Kind, x.Name}, {"state", x.State}, {"why", x.Why}, {"since", since}, {"next", x.Next}}
	out = append(out, x.facts...)
	for _, t := range x.Try {
		out = append(out, fact{"try", t})
	}
	for _, pool := range x.Pools {
		out = append(out, pool.lines(now, tty)...)
	}
	return out
}

// answer prints the explanation: a line for each fact.
func (x *Explanation) answer(sess *session.Session) error {
	if x.needsNode {
		x.Try = append([]string{sess.StartNode()}, x.Try...)
	}
	tty := sess.Out.Streams.OutTTY
	p := sess.Out.Palette()
	var b strings.Builder
	for _, l := range x.lines(sess.Out.Now(), tty) {
		text := term.Clean(l.text)
		switch {
		case !tty:
			fmt.Fprintf(&b, "%s\t%s\n", l.name, text)
			continue
		case l.name == x.Kind:
			text = p.Bold(text)
		case l.name == "state":
			if text = strings.TrimSpace(x.mark + " " + text); x.paint != nil {
				text = x.paint(text)
			}
		}
		fmt.Fprintf(&b, "%s  %s\n", p.Dim(term.PadRight(l.name, 8)), text)
	}
	if x.Try == nil {
		x.Try = []string{}
	}
	return sess.Out.Answer(output.Answer{Data: x, Names: []string{x.Name}, Text: b.String()})
}
