package explain

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/cli/session"
	"github.com/dynctl/dynctl/internal/cli/term"
	"github.com/dynctl/dynctl/internal/cluster"
)

// foot says where the prompt was computed, and what a cost is.
func (r Route) foot(sess *session.Session) string {
	var b strings.Builder
	for _, d := range r.Decisions {
		if text := prefillText(&d); text != "" {
			fmt.Fprintf(&b, "%s\n", term.Clean(text))
		}
	}
	for _, d := range r.Decisions {
		for _, text := range imageTexts(&d) {
			fmt.Fprintf(&b, "%s\n", term.Clean(text))
		}
		if text := timelineText(&d); text != "" {
			fmt.Fprintf(&b, "%s\n", term.Clean(text))
		}
	}
	for _, d := range r.Decisions {
		if text := accuracyText(&d); text != "" {
			fmt.Fprintf(&b, "%s\n", term.Clean(text))
		}
	}
	if len(r.Decisions) > 1 && strings.Contains(r.Decisions[len(r.Decisions)-1].RequestID, "~") {
		fmt.Fprintf(&b, "the request continued on another worker: ~1 marks the first move\n")
	}
	if text := weighedText(&r.Decisions[0]); text != "" {
		fmt.Fprintf(&b, "%s\n", text)
	}
	if text := policyText(r.Decisions[0].Policy); text != "" {
		fmt.Fprintf(&b, "%s\n", sess.Out.Palette().Dim(text+"; dynctl set router.policy=... changes the policy"))
	}
	return b.String()
}

// weighedText says which terms decided, and that the overlap did not if it is told.
func weighedText(d *cluster.RouterDecision) string {
	if len(d.Weighed) == 0 {
		return ""
	}
	text := "decided by " + term.Clean(strings.Join(d.Weighed, " and "))
	if slices.Contains(d.Weighed, cluster.TermSession) {
		text += "; session is the cost of leaving the worker of the session's last request"
	}
	if slices.Contains(d.Weighed, cluster.TermTaints) {
		text += "; taints is what the preferred taints of the request change"
	}
	if !d.WeighsOverlap() {
		text += "; overlap is observed at the chosen worker, and not weighed"
	}
	return text
}

// accuracyText compares what was predicted of the chosen worker's cache with what it found;
// empty until the worker has told that.
func accuracyText(d *cluster.RouterDecision) string {
	if d.Chosen == "" || d.Prefill == "" {
		return ""
	}
	return fmt.Sprintf("predicted in the cache of %s: %s; found: %d", d.Chosen, human.Plural(d.Predicted, "block"), d.Overlap)
}

// policyText says how a policy chooses; empty for one that is not known here.
func policyText(policy string) string {
	switch policy {
	case "kv":
		return "cost, in prompt blocks: queue waits to be computed there, uncached of this prompt must be, later requests wait for that, evict come again after they were evicted for it, active is the share of KV in use; the lowest is chosen"
	case "direct":
		return "each request names its worker, so there is nothing to choose"
	case "least-loaded":
		return "cost = requests in flight; the lowest is chosen, and a hash decides between equals"
	case "power-of-two":
		return "cost = requests in flight; the lower of two that are drawn is chosen"
	case "random":
		return "cost = a hash of request and worker; the lowest is chosen"
	case "round-robin":
		return "workers take turns, whatever their load"
	}
	return ""
}

// prefillText says where the prompt of a decision was computed, or why a prefill worker was
// asked; empty if that is not known.
func prefillText(d *cluster.RouterDecision) string {
	switch {
	case d.Phase == cluster.RolePrefill && d.PrefillWhy != "" && d.Chosen != "":
		return "prefill at " + d.Chosen + " (" + d.PrefillWhy + ")"
	case d.Prefill == "" || d.Phase == cluster.RolePrefill: // the decode phase says where in the end
		return ""
	}
	text := "prompt computed at " + d.Prefill
	if d.Prefill == "local" && d.Chosen != "" {
		text = "prompt computed by " + d.Chosen + " itself"
	}
	if d.PrefillWay != "" {
		text += " by " + d.PrefillWay
	}
	if d.PrefillWhy != "" {
		text += " (" + d.PrefillWhy + ")"
	}
	return text
}
