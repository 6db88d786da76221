package pane

import (
	"strconv"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/tui/cells"
	"github.com/dynctl/dynctl/internal/tui/moment"
	"github.com/dynctl/dynctl/internal/tui/plain"
)

func (p *caches) Table(o plain.Options) plain.Table {
	t := plain.New("index", "WORKER", ">DEVICE", ">HOST", ">DISK", "EPOCH", ">EVENTS/S", ">LAST EVENT", ">GAPS", ">OUT OF DATE", ">PREDICTED", ">FALSE", "INSTANCE")
	count := func(c *cluster.KVCache, get func(x *cluster.KVIndexWorker) uint64) string {
		if c.Index == nil {
			return cells.Unknown
		}
		return strconv.FormatUint(get(c.Index), 10)
	}
	for i := range p.all() {
		c := p.at(i)
		var since, late *time.Duration
		if !c.EventAt.IsZero() {
			d := p.m.Snap.Time.Sub(c.EventAt)
			since = &d
		}
		if c.Index != nil && !c.Approximate {
			d := p.m.OutOfDate(c)
			late = &d
		}
		predicted, wrong := cells.Unknown, cells.Unknown
		if c.Index != nil && c.Index.Recent != nil {
			predicted, wrong = strconv.FormatUint(c.Index.Recent.Predicted, 10), strconv.FormatUint(c.Index.Recent.False, 10)
		}
		t.Add(c.Worker, count(c, func(x *cluster.KVIndexWorker) uint64 { return uint64(x.Device) }), count(c, func(x *cluster.KVIndexWorker) uint64 { return uint64(x.Host) }),
			count(c, func(x *cluster.KVIndexWorker) uint64 { return uint64(x.Disk) }), moment.CacheEpoch(c), o.Float(c.EventRate, cells.CompactOr), o.Duration(since, cells.Seconds),
			count(c, func(x *cluster.KVIndexWorker) uint64 { return x.GapsTotal }), o.Duration(late, cells.Seconds), predicted, wrong, c.InstanceID.String())
	}
	return t
}
