package kerneltest

import (
	"math"
	"math/bits"
	"slices"

	"github.com/dynctl/dynctl/internal/lab/cuda/fake"
)

// sampling and adjustment are the structures of the sources.
type sampling struct {
	seed                            uint64
	position, topK                  int32
	temperature, topP, minP         float32
	repetition, frequency, presence float32
	mask                            int32
	_                               int32
}

type adjustment struct {
	token, count, listed int32
	bias                 float32
}

// adjust changes one logit.
func adjust(row []float32, a adjustment, p sampling) {
	if a.token < 0 || int(a.token) >= len(row) {
		return
	}
	l := float64(row[a.token]) + float64(a.bias)
	if math.IsNaN(l) || math.IsInf(l, -1) {
		row[a.token] = float32(l)
		return
	}
	switch {
	case a.listed != 0 && l > 0:
		l /= float64(p.repetition)
	case a.listed != 0:
		l *= float64(p.repetition)
	}
	if a.count > 0 {
		l -= float64(p.frequency)*float64(a.count) + float64(p.presence)
	}
	row[a.token] = float32(max(min(l, math.MaxFloat32), -math.MaxFloat32))
}

// candidate is a token that may be drawn.
type candidate struct {
	id     int
	logit  float32
	weight uint64 // its probability relative to the best, in units of 2^-31
}

func sample(c *fake.Call) {
	out, logits, masks, params, adjustments, startsAt := c.Pointer(), c.Pointer(), c.Pointer(), c.Pointer(), c.Pointer(), c.Pointer()
	vocab, limit, words, rows := int(c.Int32()), int(c.Int32()), int(c.Int32()), int(c.Grid.X)
	ids := write[int32](c, out, rows)
	for r, p := range read[sampling](c, params, rows) {
		if startsAt != 0 {
			starts := read[int32](c, at[int32](startsAt, r), 2)
			if n := int(starts[1] - starts[0]); n > 0 {
				row := write[float32](c, at[float32](logits, r*vocab), vocab)
				for _, a := range read[adjustment](c, at[adjustment](adjustments, int(starts[0])), n) {
					adjust(row, a, p)
				}
			}
		}
		var all []candidate
		var allowed []uint32
		if p.mask >= 0 {
			allowed = read[uint32](c, at[uint32](masks, int(p.mask)*words), words)
		}
		for i, l := range read[float32](c, at[float32](logits, r*vocab), limit) {
			if allowed != nil && allowed[i/32]>>(i%32)&1 == 0 {
				l = float32(math.Inf(-1))
			}
			all = append(all, candidate{id: i, logit: l})
		}
		ids[r] = int32(choose(all, p))
	}
}

// choose sorts all candidates, and takes from the front what the request leaves.
func choose(all []candidate, p sampling) int {
	if slices.ContainsFunc(all, func(c candidate) bool { return c.logit != c.logit }) {
		return -1
	}
	slices.SortStableFunc(all, func(a, b candidate) int {
		switch {
		case a.logit > b.logit:
			return -1
		case a.logit < b.logit:
			return 1
		}
		return 0
	})
	best := all[0]
	if math.IsInf(float64(best.logit), 0) {
		return -1
	}
	if p.temperature <= 0 {
		return best.id
	}
	if p.topK > 0 && int(p.topK) < len(all) {
		all = all[:p.topK]
	}
	var sum uint64
	for i := range all {
		share := math.Exp2(float64(all[i].logit-best.logit) * min(math.Log2E/float64(p.temperature), 1e30))
		if share >= float64(p.minP) {
			all[i].weight = uint64(share*(1<<31) + 0.5)
		}
		sum += all[i].weight
	}
	if p.topP > 0 && p.topP < 1 {
		goal := max(1, uint64(math.Ceil(float64(p.topP)*float64(sum))))
		sum = 0
		n := 0
		for ; sum < goal; n++ {
			sum += all[n].weight
		}
		all = all[:n]
	}
	slices.SortFunc(all, func(a, b candidate) int { return a.id - b.id })
	goal, _ := bits.Mul64(uniform(p.seed, int(p.position)), sum)
	for _, c := range all {
		if goal < c.weight {
			return c.id
		}
		goal -= c.weight
	}
	return -2 // the weights are their sum: this cannot be
}

// uniform is the generator of the CPU engine, as 53 bits in the upper part of 64.
func uniform(seed uint64, position int) uint64 {
	x := mix(seed + 0x9e3779b97f4a7c15)
	return mix(x^bits.RotateLeft64(uint64(position)*0xd1342543de82ef95+0x2545f4914f6cdd1d, 23)) &^ (1<<11 - 1)
}

// mix spreads the bits of a number over all of them (splitmix64).
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
