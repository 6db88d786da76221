package profiler

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/dynctl/dynctl/internal/profile"
)

// ErrTooFew is returned by [Build] for points that make no profile.
var ErrTooFew = errors.New("too little is measured for a profile: it takes two prompts and one point of decoding")

// Unknown are the fields of a built profile that nothing has shown. Its frontend_s is all that
// a request takes beside its steps, with delivery_s in it.
func Unknown() []string {
	return []string{"kv", "overheads.delivery_s", "overheads.startup_s", "overheads.flip_s"}
}

// Build makes a profile of measured points: tables of them, and the costs of steps that
// describe them best. A prompt is known to be computed in chunks of max_num_batched_tokens, and
// the time between tokens is that of a step with a token of each sequence.
func Build(of Subject, measured []Measurement) (*profile.Profile, error) {
	p := &profile.Profile{Version: profile.Version, Name: of.Model, Devices: of.Devices, Limits: of.Limits}
	p.Measured = profile.Measured{Prefill: prefillTable(of, measured), Decode: decodeTable(of, measured)}
	if p.Measured.Prefill == nil || len(p.Measured.Prefill.ISL) < 2 || p.Measured.Decode == nil {
		return nil, ErrTooFew
	}
	costs, request, quality, err := profile.FitRequests(Samples(of.Limits, measured))
	if err != nil {
		return nil, fmt.Errorf("find the costs of steps: %w", err)
	}
	p.Step, p.Overheads.Frontend, p.Fitted = costs, request, &quality
	if err := p.Validate(); err != nil {
		return nil, err
	}
	return p, nil
}

// Samples are the points as steps whose work is known.
func Samples(l profile.Limits, measured []Measurement) (out []profile.Sample) {
	for _, m := range measured {
		s := profile.Sample{Seconds: m.Seconds, Steps: 1}
		if m.Kind == Prefill {
			s.Work, s.Steps = l.Prompt(m.Cached, m.Prompt)
			s.Requests = 1
		} else {
			s.Work = profile.Work{Decodes: m.Streams, DecodeContext: int(math.Round(m.Context * float64(m.Streams)))}
		}
		out = append(out, s)
	}
	return out
}

// prefillTable has the tokens that were computed, without those that a cache had.
func prefillTable(of Subject, measured []Measurement) *profile.PrefillTable {
	t := &profile.PrefillTable{}
	for _, m := range sorted(measured, Prefill) {
		n := float64(m.Prompt - m.Cached)
		if k := len(t.ISL); k > 0 && n <= t.ISL[k-1] {
			continue // the server counts both alike
		}
		t.ISL, t.TTFT = append(t.ISL, n), append(t.TTFT, m.Seconds)
		t.Throughput = append(t.Throughput, n/m.Seconds/float64(of.Devices))
	}
	if len(t.ISL) == 0 {
		return nil
	}
	return t
}

// decodeTable has a row for each context that was wanted, at the mean of the contexts that were.
func decodeTable(of Subject, measured []Measurement) *profile.DecodeTable {
	t := &profile.DecodeTable{MaxKVTokens: of.Limits.KVTokens()}
	rows := map[int][]float64{}
	all := sorted(measured, Decode)
	for _, m := range all {
		rows[m.Tokens] = append(rows[m.Tokens], m.Context)
	}
	for _, m := range all {
		sum := 0.0
		for _, c := range rows[m.Tokens] {
			sum += c
		}
		t.Context = append(t.Context, sum/float64(len(rows[m.Tokens])))
		t.KVUsage = append(t.KVUsage, m.Use(of.Limits))
		t.ITL = append(t.ITL, m.Seconds)
		t.Throughput = append(t.Throughput, m.Throughput()/float64(of.Devices))
	}
	if len(all) == 0 {
		return nil
	}
	return t
}

// Use is the share of the KV pool that the sequences of a point of decoding hold.
func (m Measurement) Use(l profile.Limits) float64 {
	return float64(m.Streams) * m.Context / float64(l.KVTokens())
}

// Throughput is the tokens per second of the worker: computed of a prompt, or generated.
func (m Measurement) Throughput() float64 {
	if m.Kind == Prefill {
		return float64(m.Prompt-m.Cached) / m.Seconds
	}
	return float64(m.Streams) / m.Seconds
}

// sorted are the points of one kind, by tokens computed or wanted, then by sequences.
func sorted(measured []Measurement, kind string) (out []Measurement) {
	for _, m := range measured {
		if m.Kind == kind {
			out = append(out, m)
		}
	}
	slices.SortFunc(out, func(a, b Measurement) int {
		if kind == Prefill {
			return cmp.Compare(a.Prompt-a.Cached, b.Prompt-b.Cached)
		}
		return cmp.Or(cmp.Compare(a.Tokens, b.Tokens), cmp.Compare(a.Streams, b.Streams))
	})
	return out
}
