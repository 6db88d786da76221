package bench

import "math"

// divergence compares the logits of a variant with those of a reference, position by
// position.
type divergence struct {
	positions int
	agree     int // positions with the same largest logit
	klSum     float64
	klMax     float64
	diffSum   float64 // of |difference|, over all logits
	diffMax   float64
	logits    int
	// Negative log-likelihoods of the tokens that come next, in nats.
	nextRef, nextVariant float64
	next                 int
}

// noNext means that no token follows.
const noNext = -1

// add compares one position. next is the token that follows, or noNext.
func (d *divergence) add(ref, variant []float32, next int) {
	refTop, refNorm := logSum(ref)
	varTop, varNorm := logSum(variant)
	kl := 0.0
	for i, r := range ref {
		r, v := float64(r), float64(variant[i])
		diff := math.Abs(r - v)
		d.diffSum += diff
		d.diffMax = max(d.diffMax, diff)
		kl += math.Exp(r-refNorm) * ((r - refNorm) - (v - varNorm))
	}
	// Rounding may give slightly negative values where both are the same.
	kl = max(kl, 0)
	d.klSum += kl
	d.klMax = max(d.klMax, kl)
	d.logits += len(ref)
	d.positions++
	if refTop == varTop {
		d.agree++
	}
	if next != noNext {
		d.nextRef += refNorm - float64(ref[next])
		d.nextVariant += varNorm - float64(variant[next])
		d.next++
	}
}

// logSum returns the first index of the largest logit, and the logarithm of the sum of
// all exponentials.
func logSum(logits []float32) (top int, norm float64) {
	for i, v := range logits {
		if v > logits[top] {
			top = i
		}
	}
	sum, most := 0.0, float64(logits[top])
	for _, v := range logits {
		sum += math.Exp(float64(v) - most)
	}
	return top, most + math.Log(sum)
}

// Column keys of accuracy.
const (
	keyKLMean     = "kl_mean_nats"
	keyKLMax      = "kl_max_nats"
	keyAgree      = "top1_percent"
	keyDiffMean   = "logit_diff_mean"
	keyDiffMax    = "logit_diff_max"
	keyPerplexity = "perplexity"
	keyPerplexed  = "perplexity_percent"
	keyWeightMiB  = "weights_mib"
)

// figures returns the results; it is empty if nothing was compared.
func (d *divergence) figures() map[string]Figure {
	if d.positions == 0 {
		return map[string]Figure{}
	}
	n := float64(d.positions)
	out := map[string]Figure{
		keyKLMean: constant(d.klSum / n), keyKLMax: constant(d.klMax),
		keyAgree:    constant(100 * float64(d.agree) / n),
		keyDiffMean: constant(d.diffSum / float64(d.logits)), keyDiffMax: constant(d.diffMax),
	}
	if d.next > 0 {
		ref, variant := math.Exp(d.nextRef/float64(d.next)), math.Exp(d.nextVariant/float64(d.next))
		out[keyPerplexity] = constant(variant)
		out[keyPerplexed] = constant(100 * (variant/ref - 1))
	}
	return out
}
