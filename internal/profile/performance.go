package profile

import "math"

// Performance answers what planners ask of a kind of worker, from the profiles of both roles.
// Lengths are in tokens and may be means, times are in seconds. It has the methods of
// planner.Performance.
type Performance struct {
	Prefill, Decode *Profile
}

// Performance returns the performance of workers that are equally fast in both roles.
func (p *Profile) Performance() Performance { return Performance{Prefill: p, Decode: p} }

// TTFT returns [Profile.TTFT] of a prefill worker.
func (p Performance) TTFT(isl float64) float64 { return p.Prefill.TTFT(tokens(isl)) }

// PrefillThroughput returns [Profile.PrefillThroughput] of a prefill worker.
func (p Performance) PrefillThroughput(isl float64) float64 {
	return p.Prefill.PrefillThroughput(tokens(isl))
}

// ITL returns [Profile.ITL] of a decode worker.
func (p Performance) ITL(kvTokens, context float64) float64 { return p.Decode.ITL(kvTokens, context) }

// DecodeThroughput returns the speed of [Profile.BestDecodeThroughput] of a decode worker.
func (p Performance) DecodeThroughput(itl, context float64) float64 {
	rate, _, _ := p.Decode.BestDecodeThroughput(itl, context)
	return rate
}

// KVCapacity returns the tokens that a decode worker has KV blocks for.
func (p Performance) KVCapacity() float64 { return float64(p.Decode.Limits.KVTokens()) }

// Handover returns the seconds from the end of a remote prefill of isl tokens until the decode worker has
// its KV: what remains to be moved then is the last step's part.
func (p Performance) Handover(isl float64) float64 {
	kv := p.Prefill.KV
	if kv.TransferRate() <= 0 {
		return kv.Latency
	}
	return kv.Latency + min(isl, float64(p.Prefill.Limits.MaxBatchTokens))/kv.TransferRate()
}

// tokens is a mean length as a whole number; a prompt has at least one token.
func tokens(n float64) int { return max(1, int(math.Round(min(n, 1<<30)))) }
