package decode

import (
	"context"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/metrics"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/worker/kv"
)

// fill has the KV of a reservation brought here; it runs in the reservation's own
// goroutine. Whatever goes wrong, the prompt is prefilled here in the end, after it
// is certain that nobody writes into its blocks any more.
func (d *disaggregation) fill(r *engine.Reservation) {
	if d.refused != "" {
		r.Release(notPrefilled(d.refused))
		return
	}
	f := &filling{w: d.w, r: r, tenant: d.tenant, media: d.media, enforce: d.hints.Enforce, begin: time.Now(), move: d.w.KV.Begin(cluster.Transfer{
		RequestID: r.RequestID, Direction: cluster.TransferIn, Blocks: len(r.Blocks) - r.CachedBlocks,
	})}
	defer f.move.End()
	ctx, cancel := context.WithTimeoutCause(r.Context(), d.w.Settings().RemoteTimeout, errRemoteTimeout)
	defer cancel()
	switch {
	case d.hints.Params != nil:
		f.pull(ctx, d.hints.Params)
	case d.hints.Bootstrap != nil:
		f.tried = d.hints.Bootstrap.ID
		f.push(ctx, protocol.WayBackground, f.joinRoom(d.hints.Bootstrap))
	default:
		d.w.asked.add(d.tenant, 1)
		f.push(ctx, protocol.WayQueue, f.requestPrefill)
		d.w.asked.add(d.tenant, -1)
	}
	if f.again(ctx) {
		f.err = nil
		f.push(ctx, protocol.WayDirect, f.callPrefill)
	}
	d.way, d.notice = f.way, f.notice
	d.notice.Transport = d.w.KV.Transport(f.notice.Transport)
	f.end(ctx)
	if f.after != nil {
		f.after()
	}
}

// filling is a reservation while somebody fills it. It belongs to the goroutine of
// the reservation.
type filling struct {
	w       *Role
	r       *engine.Reservation
	tenant  string // of the request
	media   []protocol.MediaPart
	enforce bool // do not prefill here
	begin   time.Time
	move    *kv.Movement

	// How it stands after an attempt.
	way    protocol.PrefillWay
	notice protocol.PrefillNotice // of who filled it
	err    error
	over   bool // the blocks are in quarantine: the reservation has ended
	// tried is the prefill worker that the frontend chose, once it has failed.
	tried cluster.InstanceID
	after func() // what is left to do when the sequence goes on; may be nil
}

// again reports whether another prefill worker gets a try: once, after the failure of
// the one that the frontend chose.
func (f *filling) again(ctx context.Context) bool {
	if f.err == nil || f.over || ctx.Err() != nil || f.tried == 0 {
		return false
	}
	for _, i := range f.w.prefills.Instances() {
		if i.InstanceID != f.tried {
			f.w.Log.Info("remote prefill failed, asking another worker", "request", f.r.RequestID, "way", string(f.way), "error", f.err)
			return true
		}
	}
	return false
}

// end ends the reservation. Nobody touches its blocks any more.
func (f *filling) end(ctx context.Context) {
	if f.over {
		return
	}
	if f.err != nil && ctx.Err() != nil {
		f.err = context.Cause(ctx)
	}
	w, way := f.w, string(f.way)
	switch {
	case f.err == nil:
		w.KV.Moved(f.notice.Bytes, time.Duration(f.notice.WriteNS))
		w.Meter.Transferred(metrics.DirectionIn, w.KV.Transport(f.notice.Transport), f.notice.Bytes, time.Duration(f.notice.WriteNS))
		w.Meter.TransferExposed(way, time.Duration(f.notice.ExposedNS))
		w.Meter.RemotePrefill(way, time.Since(f.begin))
		w.Meter.Prefill(metrics.PrefillRemote, way, "")
		f.r.Start(f.notice.Worker)
		pointStarted.Hit()
	case f.r.Context().Err() != nil:
		f.r.Release(context.Cause(f.r.Context()))
	case f.enforce:
		w.Log.Warn("remote prefill failed, and this worker must not prefill", "request", f.r.RequestID, "way", way, "error", f.err)
		f.r.Release(notPrefilled(fallbackReason(f.err)))
	default:
		w.Log.Warn("remote prefill failed, prefilling here", "request", f.r.RequestID, "way", way, "error", f.err)
		w.Meter.Prefill(metrics.PrefillFallback, way, fallbackReason(f.err))
		f.r.Fallback(fallbackReason(f.err))
	}
}
