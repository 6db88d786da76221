package nixl

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Traffic counts the cost and bytes of transfers to a peer, or over a transport, since
// the agent started. Tx and Rx are as in [Stats]; accesses by peers are not part of it.
type Traffic struct {
	TxBytes   uint64 // of writes that succeeded
	RxBytes   uint64 // of reads that succeeded
	Descs     uint64 // descriptors of transfers that succeeded, after joining neighbors
	Transfers uint64 // that succeeded
	Errors    map[Status]uint64
	PostTime  Histogram // inside Post
	XferTime  Histogram // from Post to the end, of transfers that succeeded
}

// Histogram counts durations.
type Histogram struct {
	Counts []uint64 // by HistogramBounds, and one for what is longer than all
	Sum    time.Duration
}

// Count is the number of durations.
func (h Histogram) Count() (n uint64) {
	for _, c := range h.Counts {
		n += c
	}
	return n
}

// HistogramBounds are the largest durations of the buckets of a Histogram.
func HistogramBounds() []time.Duration { return slices.Clone(histogramBounds[:]) }

// histogramBounds are 1, 2, 5 steps from 10 µs to 10 s.
var histogramBounds = func() (out [19]time.Duration) {
	for i, d := 0, 10*time.Microsecond; i < len(out); i++ {
		out[i] = d * time.Duration([3]int{1, 2, 5}[i%3])
		if i%3 == 2 {
			d *= 10
		}
	}
	return out
}()

type histogram struct {
	counts [len(histogramBounds) + 1]atomic.Uint64
	sum    atomic.Int64
}

func (h *histogram) observe(d time.Duration) {
	i, _ := slices.BinarySearch(histogramBounds[:], d)
	h.counts[i].Add(1)
	h.sum.Add(int64(d))
}

func (h *histogram) snapshot() Histogram {
	out := Histogram{Counts: make([]uint64, len(h.counts)), Sum: time.Duration(h.sum.Load())}
	for i := range h.counts {
		out.Counts[i] = h.counts[i].Load()
	}
	return out
}

func (h *Histogram) add(o Histogram) {
	if h.Counts == nil {
		h.Counts = make([]uint64, len(o.Counts))
	}
	for i, n := range o.Counts {
		h.Counts[i] += n
	}
	h.Sum += o.Sum
}

// traffic counts the transfers of one path.
type traffic struct {
	txBytes, rxBytes, descs, transfers atomic.Uint64
	errors                             [16]atomic.Uint64 // by negated status
	postTime, xferTime                 histogram
	lastUsed                           atomic.Int64 // unix nanoseconds
}

// ended takes in the outcome of a post.
func (tr *traffic) ended(op Op, st Status, tele Telemetry) {
	tr.lastUsed.Store(tele.Start.UnixNano())
	if st != Success {
		if i := -int(st); i > 0 && i < len(tr.errors) {
			tr.errors[i].Add(1)
		}
		return
	}
	tr.transfers.Add(1)
	tr.descs.Add(uint64(tele.Descs))
	tr.xferTime.observe(tele.XferDuration)
	if op == Write {
		tr.txBytes.Add(tele.Bytes)
	} else {
		tr.rxBytes.Add(tele.Bytes)
	}
}

func (tr *traffic) snapshot() Traffic {
	return Traffic{
		TxBytes: tr.txBytes.Load(), RxBytes: tr.rxBytes.Load(), Descs: tr.descs.Load(), Transfers: tr.transfers.Load(),
		Errors: statusCounts(&tr.errors), PostTime: tr.postTime.snapshot(), XferTime: tr.xferTime.snapshot(),
	}
}

// statusCounts are the counts of those statuses that occurred.
func statusCounts(by *[16]atomic.Uint64) map[Status]uint64 {
	out := map[Status]uint64{}
	for i := range by {
		if n := by[i].Load(); n > 0 {
			out[Status(-i)] = n
		}
	}
	return out
}

func (t *Traffic) add(o Traffic) {
	t.TxBytes += o.TxBytes
	t.RxBytes += o.RxBytes
	t.Descs += o.Descs
	t.Transfers += o.Transfers
	if t.Errors == nil {
		t.Errors = map[Status]uint64{}
	}
	for st, n := range o.Errors {
		t.Errors[st] += n
	}
	t.PostTime.add(o.PostTime)
	t.XferTime.add(o.XferTime)
}

// pathKey names a path; an empty peer stands for those whose own counts were dropped.
type pathKey struct{ peer, transport string }

// paths is the traffic of an agent by path. It survives that peers fail and are loaded
// again. Beyond limit the paths that were used longest ago are counted by transport only.
type paths struct {
	limit int

	mu   sync.Mutex
	open map[pathKey]*traffic
	past map[string]Traffic // of dropped paths, by transport
}

func (ps *paths) path(peer, transport string) *traffic {
	k := pathKey{peer, transport}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if tr := ps.open[k]; tr != nil {
		return tr
	}
	if len(ps.open) >= ps.limit {
		ps.dropOldestLocked()
	}
	tr := &traffic{}
	tr.lastUsed.Store(time.Now().UnixNano())
	ps.open[k] = tr
	return tr
}

func (ps *paths) dropOldestLocked() {
	var oldest pathKey
	var since int64
	for k, tr := range ps.open {
		if at := tr.lastUsed.Load(); since == 0 || at < since {
			oldest, since = k, at
		}
	}
	sum := ps.past[oldest.transport]
	sum.add(ps.open[oldest].snapshot())
	ps.past[oldest.transport] = sum
	delete(ps.open, oldest)
}

// find returns the traffic of one path, empty if there is none.
func (ps *paths) find(peer, transport string) Traffic {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if tr := ps.open[pathKey{peer, transport}]; tr != nil {
		return tr.snapshot()
	}
	return Traffic{}
}

func (ps *paths) byTransport() map[string]Traffic {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	out := map[string]Traffic{}
	for name, sum := range ps.past {
		var total Traffic
		total.add(sum)
		out[name] = total
	}
	for k, tr := range ps.open {
		total := out[k.transport]
		total.add(tr.snapshot())
		out[k.transport] = total
	}
	return out
}
