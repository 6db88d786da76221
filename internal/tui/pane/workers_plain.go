package pane

import (
	"math"
	"strconv"

	"github.com/dynctl/dynctl/internal/tui/cells"
	"github.com/dynctl/dynctl/internal/tui/moment"
	"github.com/dynctl/dynctl/internal/tui/plain"
)

func (p *workers) Table(o plain.Options) plain.Table {
	t := plain.New("workers", "NAME", "ROLE", "DEVICE", "STATE", ">SEQS", ">KV USED", ">KV TOTAL", ">TOK/S", ">PREFIX%", ">LEASE", ">UP", ">FALSE%")
	if o.Wide {
		t.AddColumns("MODEL", "NODE", "HOST", "VERSION", "INSTANCE", ">WAITING", ">PREEMPTED", "REASON", ">TP")
	}
	f := &p.m.Known
	for i := range p.m.Snap.Workers {
		w := p.at(i)
		used, total, sequences := cells.Unknown, cells.Unknown, moment.Sequences(w)
		if moment.Measured(w) && w.Stats.KVTotal > 0 {
			used, total = strconv.Itoa(w.Stats.KVUsed()), strconv.Itoa(w.Stats.KVTotal)
		}
		state, hit := cells.OrUnknown(string(w.State)), cells.Percent(w.HitRate)
		if w.Silent() {
			state = "unknown"
		}
		if o.Terminal {
			state = p.m.StateText(w)
		} else if moment.Measured(w) {
			sequences = strconv.Itoa(w.Stats.Running)
		}
		if w.HitRate != nil && o.Exact {
			hit = strconv.FormatFloat(math.Round(*w.HitRate*1e6)/1e4, 'f', -1, 64)
		}
		wrong := cells.Percent(p.m.FalseShare(w))
		if share := p.m.FalseShare(w); share != nil && o.Exact {
			wrong = strconv.FormatFloat(math.Round(*share*1e6)/1e4, 'f', -1, 64)
		}
		row := []string{w.Name, cells.OrUnknown(string(w.Role)), cells.OrUnknown(f.Devices[i]), state, sequences, used, total,
			o.Float(w.TokS, cells.CompactOr), hit, o.Duration(w.Lease, cells.Seconds), o.Duration(w.Uptime, cells.Uptime), wrong}
		if o.Wide {
			row = append(row, cells.OrUnknown(w.Model), cells.OrUnknown(w.Node), cells.OrUnknown(f.Hosts[i]), cells.OrUnknown(f.Versions[i]),
				cells.OrUnknown(moment.Instance(w.InstanceID)), moment.Number(w, w.Stats.Waiting), moment.Number(w, w.Stats.PreemptedTotal),
				cells.OrUnknown(w.Reason), moment.Degree(w.TensorParallel))
		}
		t.Add(row...)
	}
	return t
}
