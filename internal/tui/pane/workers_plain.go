package pane

import (
	"math"
	"strconv"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/tui/cells"
	"github.com/dynctl/dynctl/internal/tui/moment"
	"github.com/dynctl/dynctl/internal/tui/plain"
)

func (p *workers) Table(o plain.Options) plain.Table {
	t := plain.New("workers", "NAME", "ROLE", "DEVICE", "STATE", ">SEQS", ">KV USED", ">KV TOTAL", ">TOK/S", ">PREFIX%", ">LEASE", ">UP", ">FALSE%")
	if o.Wide {
		t.AddColumns("MODEL", "NODE", "HOST", "VERSION", "INSTANCE", ">WAITING", ">PREEMPTED", "REASON", ">TP", ">IMAGES/S", ">IMAGE HIT%", ">EMBEDDINGS B/S")
	}
	f := &p.m.Known
	for i := range p.m.Snap.Workers {
		w := p.at(i)
		used, total, sequences := cells.Unknown, cells.Unknown, moment.Sequences(w)
		if moment.Measured(w) && w.Stats.KVTotal > 0 {
			used, total = strconv.Itoa(w.Stats.KVUsed()), strconv.Itoa(w.Stats.KVTotal)
		}
		state, hit := cells.OrUnknown(string(w.State)), percent(o, w.HitRate)
		if w.Silent() {
			state = "unknown"
		}
		if o.Terminal {
			state = p.m.StateText(w)
		} else if moment.Measured(w) {
			sequences = strconv.Itoa(w.Stats.Running)
		}
		wrong := percent(o, p.m.FalseShare(w))
		row := []string{w.Name, cells.OrUnknown(string(w.Role)), cells.OrUnknown(f.Devices[i]), state, sequences, used, total,
			o.Float(w.TokS, cells.CompactOr), hit, o.Duration(w.Lease, cells.Seconds), o.Duration(w.Uptime, cells.Uptime), wrong}
		if o.Wide {
			row = append(row, cells.OrUnknown(w.Model), cells.OrUnknown(w.Node), cells.OrUnknown(f.Hosts[i]), cells.OrUnknown(f.Versions[i]),
				cells.OrUnknown(moment.Instance(w.InstanceID)), moment.Number(w, w.Stats.Waiting), moment.Number(w, w.Stats.PreemptedTotal),
				cells.OrUnknown(w.Reason), moment.Degree(w.TensorParallel))
			images := cluster.ImageRates{}
			if w.Images != nil {
				images = *w.Images
			}
			row = append(row, o.Float(images.EncodedS, cells.CompactOr), percent(o, images.HitRate), o.Float(images.MovedBS, cells.CompactOr))
		}
		t.Add(row...)
	}
	return t
}

// percent prints a share, which exact tables have with four places.
func percent(o plain.Options, share *float64) string {
	if share != nil && o.Exact {
		return strconv.FormatFloat(math.Round(*share*1e6)/1e4, 'f', -1, 64)
	}
	return cells.Percent(share)
}
