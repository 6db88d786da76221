package client

import (
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
)

// transferTimes are the durations of the KV transfers that were reported within a second.
type transferTimes struct {
	at    time.Time
	times cluster.Histogram
}

// sums are counters added up over all workers.
type sums struct {
	transfers, transferBytes, transferNanos uint64
}

// transferred adds the durations of transfers that a worker reported after its former status.
// The caller holds mu.
func (t *tally) transferred(was, is *cluster.Histogram) {
	if is == nil {
		return
	}
	times := *is
	if was != nil {
		times = is.Since(*was)
	}
	if times.IsZero() {
		return
	}
	now := time.Now()
	if n := len(t.transfers); n > 0 && now.Sub(t.transfers[n-1].at) < time.Second {
		t.transfers[n-1].times.Add(times)
		return
	}
	t.transfers = append(t.transfers, transferTimes{now, times})
	t.dropTransfers(now)
}

// dropTransfers forgets what is older than the window. The caller holds mu.
func (t *tally) dropTransfers(now time.Time) {
	for len(t.transfers) > 0 && now.Sub(t.transfers[0].at) > latencyWindow {
		t.transfers = t.transfers[1:]
	}
}

// total adds up the counters of all workers. It counts each transfer at its receiver.
func (t *tally) total() sums {
	var s sums
	for _, w := range t.workers {
		st := w.last.Stats
		if w.last.Role == cluster.RoleDecode {
			s.transfers += st.TransfersTotal
			s.transferBytes += st.TransferBytesTotal
			s.transferNanos += st.TransferNanosTotal
		}
	}
	return s
}

func (t *tally) fillLatency(now time.Time) cluster.Latency {
	for len(t.latency) > 0 && now.Sub(t.latency[0].Time) > latencyWindow {
		t.latency = t.latency[1:]
	}
	t.dropTransfers(now)
	var ttft, itl, queue, transfers cluster.Histogram
	for _, x := range t.transfers {
		transfers.Add(x.times)
	}
	out := cluster.Latency{WindowS: int(latencyWindow / time.Second)}
	for _, f := range t.latency {
		ttft.Add(f.TTFT)
		itl.Add(f.ITL)
		queue.Add(f.Queue)
		out.Requests += uint64(f.Finished)
	}
	out.TTFT, out.ITL, out.Queue = cluster.PercentilesOf(ttft), cluster.PercentilesOf(itl), cluster.PercentilesOf(queue)
	out.Transfers = cluster.PercentilesOf(transfers)
	total := t.total()
	if d := total.transfers; d > 0 {
		ms := float64(total.transferNanos) / float64(d) / 1e6
		out.Transfer = &ms
		if total.transferNanos > 0 {
			bs := float64(total.transferBytes) / (float64(total.transferNanos) / 1e9)
			out.TransferBS = &bs
		}
	}
	return out
}
