package cluster

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"time"
)

// Histogram counts durations in buckets that grow by a factor of 2^(1/8), from
// 1 microsecond to about 16 minutes: a quantile read from it lies in the bucket of
// the true one, so it is off by less than 9.1 %. Histograms add. The zero value is
// empty and ready.
type Histogram struct {
	counts [histBuckets]uint32
}

const (
	histBuckets = 240
	histBase    = float64(time.Microsecond)
	histPerOct  = 8
)

// IsZero reports whether nothing was observed. Codecs that omit zero values call it,
// because they cannot see the unexported counts.
func (h Histogram) IsZero() bool { return h == Histogram{} }

// Observe counts one duration.
func (h *Histogram) Observe(d time.Duration) { h.counts[histIndex(d)]++ }

func histIndex(d time.Duration) int {
	if d <= time.Microsecond {
		return 0
	}
	i := int(math.Log2(float64(d)/histBase)*histPerOct) + 1
	return min(i, histBuckets-1)
}

// Add adds the counts of o.
func (h *Histogram) Add(o Histogram) {
	for i, c := range o.counts {
		h.counts[i] += c
	}
}

// Since returns what was counted after earlier, a former state of the same histogram.
func (h Histogram) Since(earlier Histogram) Histogram {
	for i, c := range earlier.counts {
		h.counts[i] -= min(c, h.counts[i])
	}
	return h
}

// Count returns the number of observed durations.
func (h Histogram) Count() uint64 {
	var n uint64
	for _, c := range h.counts {
		n += uint64(c)
	}
	return n
}

// Quantile returns the duration below which the share q (0 to 1) of the
// observations lie, interpolated inside its bucket; ok is false when empty.
func (h Histogram) Quantile(q float64) (d time.Duration, ok bool) {
	total := h.Count()
	if total == 0 {
		return 0, false
	}
	rank := min(max(q, 0), 1) * float64(total)
	var seen float64
	for i, c := range h.counts {
		if c == 0 {
			continue
		}
		if seen+float64(c) >= rank {
			lo, hi := histBounds(i)
			return time.Duration(lo + (hi-lo)*math.Max(0, (rank-seen)/float64(c))), true
		}
		seen += float64(c)
	}
	lo, hi := histBounds(histBuckets - 1)
	return time.Duration((lo + hi) / 2), true
}

func histBounds(i int) (lo, hi float64) {
	hi = histBase * math.Exp2(float64(i)/histPerOct)
	if i == 0 {
		return 0, hi
	}
	return histBase * math.Exp2(float64(i-1)/histPerOct), hi
}

// sparse returns the encoded form: pairs of bucket index and count.
func (h Histogram) sparse() [][2]uint32 {
	out := [][2]uint32{}
	for i, c := range h.counts {
		if c > 0 {
			out = append(out, [2]uint32{uint32(i), c})
		}
	}
	return out
}

// MarshalJSON encodes the histogram as pairs [bucket, count].
func (h Histogram) MarshalJSON() ([]byte, error) { return json.Marshal(h.sparse()) }

// UnmarshalJSON decodes pairs [bucket, count] and refuses unknown buckets.
func (h *Histogram) UnmarshalJSON(b []byte) error {
	var pairs [][]uint32 // not [2]uint32, which would take pairs of any length
	if err := json.Unmarshal(b, &pairs); err != nil {
		return fmt.Errorf("histogram: %w", err)
	}
	var next Histogram
	for _, p := range pairs {
		if len(p) != 2 {
			return fmt.Errorf("histogram: %d numbers in place of bucket and count", len(p))
		}
		if p[0] >= histBuckets {
			return fmt.Errorf("histogram: bucket %d of %d", p[0], histBuckets)
		}
		next.counts[p[0]] += p[1]
	}
	*h = next
	return nil
}

// MarshalBinary encodes the histogram as varint pairs (bucket, count).
func (h Histogram) MarshalBinary() ([]byte, error) {
	var b []byte
	for _, p := range h.sparse() {
		b = binary.AppendUvarint(b, uint64(p[0]))
		b = binary.AppendUvarint(b, uint64(p[1]))
	}
	return b, nil
}

// UnmarshalBinary decodes varint pairs and refuses unknown buckets.
func (h *Histogram) UnmarshalBinary(b []byte) error {
	var next Histogram
	for len(b) > 0 {
		bucket, n := binary.Uvarint(b)
		if n <= 0 || bucket >= histBuckets {
			return fmt.Errorf("histogram: bad bucket in %d bytes", len(b))
		}
		count, m := binary.Uvarint(b[n:])
		if m <= 0 || count > math.MaxUint32 {
			return fmt.Errorf("histogram: bad count in %d bytes", len(b))
		}
		next.counts[bucket] += uint32(count)
		b = b[n+m:]
	}
	*h = next
	return nil
}
