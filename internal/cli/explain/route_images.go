package explain

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/cluster"
)

// imageTexts says who encoded the images of the prompt, and why that worker.
func imageTexts(d *cluster.RouterDecision) []string {
	m := d.Images
	if m == nil {
		return nil
	}
	asked := m.Count - len(m.By)
	out := []string{fmt.Sprintf("images: %d, %d of them computed before", m.Count, m.Cached)}
	for i, by := range m.By {
		why := ""
		if i < len(m.Chosen) && m.Chosen[i] != "" {
			why = " (" + m.Chosen[i] + ")"
		}
		out = append(out, "embeddings from "+by+why)
	}
	if asked > 0 {
		out = append(out, fmt.Sprintf("embeddings of %s were at the worker with the prompt", human.Plural(asked, "image")))
	}
	return out
}

// timelineText is the way of a request to its last token, step by step; empty until it is
// known.
func timelineText(d *cluster.RouterDecision) string {
	if d.Prefill == "" || d.QueueNS == 0 && d.PrefillNS == 0 && d.Images == nil && d.KV == nil {
		return ""
	}
	local := d.Prefill == "local"
	if !local && d.PrefillWay == "" { // a hand-over: nothing was computed
		return strings.Join([]string{kvStep(d) + " from " + d.Prefill, decodeStep(d)}, " > ")
	}
	steps := []string{"queue " + millis(d.QueueNS)}
	if m := d.Images; m != nil {
		encode := "encode " + millis(max(m.EncodeNS-m.MoveNS, 0))
		if len(m.By) > 0 {
			encode += " at " + strings.Join(m.By, " and ")
		}
		steps = append(steps, encode)
		if m.Bytes > 0 {
			steps = append(steps, fmt.Sprintf("embeddings %s, %s", millis(m.MoveNS), human.Bytes(m.Bytes)))
		}
	}
	at, ns := d.Prefill, cmp.Or(d.ComputeNS, d.PrefillNS)
	if local {
		at, ns = d.Chosen, d.PrefillNS
	}
	if d.Images != nil { // the embeddings were waited for meanwhile
		ns = max(ns-d.Images.EncodeNS, 0)
	}
	steps = append(steps, "prefill "+millis(ns)+" at "+cmp.Or(at, "-"))
	if !local {
		steps = append(steps, kvStep(d))
	}
	return strings.Join(append(steps, decodeStep(d)), " > ")
}

// kvStep is the transfer of KV to the worker that decodes.
func kvStep(d *cluster.RouterDecision) string {
	if d.KV == nil {
		return "KV to " + d.Chosen
	}
	return fmt.Sprintf("KV %s, %s to %s", millis(d.KV.NS), human.Bytes(d.KV.Bytes), d.Chosen)
}

// decodeStep is the time from the first token to the last one, once that is known.
func decodeStep(d *cluster.RouterDecision) string {
	text := "decode"
	if d.DecodeNS > 0 {
		text += " " + millis(d.DecodeNS)
	}
	return text + " at " + human.OrDash(d.Chosen)
}

func millis(ns int64) string {
	return fmt.Sprintf("%.1f ms", float64(ns)/float64(time.Millisecond))
}
