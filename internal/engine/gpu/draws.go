package gpu

import (
	"context"
	"encoding/binary"

	"github.com/dynctl/dynctl/internal/cuda/device"
	"github.com/dynctl/dynctl/internal/cuda/kernels"
	"github.com/dynctl/dynctl/internal/engine"
)

// draws holds the host's inputs to the choice of tokens: pinned memory, and a copy of it
// on the first rank. It is separate from the inputs of a pass, because masks become
// available only while the device computes.
type draws struct {
	host   []byte
	device device.Region
	words  int // of a mask, 64 bits each

	starts  span // int32 [row + 1]: first change of each row
	params  span // kernels.Sampling [row]
	changes span // kernels.Adjustment [most]
	masks   span // [row][words]
}

// newDraws computes the layout for the given rows and tokens to choose from, without
// memory. A row changes the logit of each token at most once, so there is always room for
// one row.
func newDraws(rows, vocab, limit int) (d draws) {
	d.words = (limit + 63) / 64
	at := 0
	take := func(bytes int) span {
		s := span{at, bytes}
		at += (bytes + 15) &^ 15
		return s
	}
	d.starts, d.params = take(4*(rows+1)), take(kernels.SamplingBytes*rows)
	d.changes, d.masks = take(kernels.AdjustmentBytes*vocab), take(8*d.words*rows)
	return d
}

func (d *draws) bytes() int64 { return int64(d.masks.from + d.masks.n) }

func (d *draws) address(s span) uint64 { return d.device.Address + uint64(s.from) }

// filled counts the used entries of draws.
type filled struct{ rows, changes, masks int }

// fill writes the choices of as many rows as there is room for, at least one. It waits
// for their masks.
func (d *draws) fill(rows []row) (f filled) {
	starts, params := d.host[d.starts.from:][:0], d.host[d.params.from:][:0]
	changes := d.host[d.changes.from:][:0:d.changes.n]
	starts = binary.LittleEndian.AppendUint32(starts, 0)
	for _, r := range rows {
		p := kernels.Sampling{Repetition: 1} // chooses the most likely token
		if c := r.choice; c != nil {
			if f.rows > 0 && (f.changes+len(c.Changes))*kernels.AdjustmentBytes > d.changes.n {
				break
			}
			p = samplingOf(c)
			for _, change := range c.Changes {
				a := kernels.Adjustment{Token: int32(change.Token), Count: change.Count, Listed: change.Listed, Bias: change.Bias}
				changes = a.Append(changes)
			}
			f.changes += len(c.Changes)
			if c.Allowed != nil {
				if mask := c.Allowed(); mask != nil {
					d.writeMask(f.masks, mask)
					f.masks++
					p.Mask = f.masks
				}
			}
		}
		params = p.Append(params)
		starts = binary.LittleEndian.AppendUint32(starts, uint32(f.changes))
		f.rows++
	}
	return f
}

func samplingOf(c *engine.Choice) kernels.Sampling {
	o := c.Sampling
	p := kernels.Sampling{
		Seed: o.Seed, Position: c.Position, TopK: max(o.TopK, 0), Temperature: o.Temperature, TopP: o.TopP, MinP: o.MinP,
		Repetition: o.RepetitionPenalty, Frequency: o.FrequencyPenalty, Presence: o.PresencePenalty,
	}
	if p.Repetition <= 0 {
		p.Repetition = 1
	}
	return p
}

// writeMask writes the i-th mask. Missing words allow no tokens.
func (d *draws) writeMask(i int, mask []uint64) {
	to := d.host[d.masks.from+8*d.words*i:][:8*d.words]
	for w := range d.words {
		var bits uint64
		if w < len(mask) {
			bits = mask[w]
		}
		binary.LittleEndian.PutUint64(to[8*w:], bits)
	}
}

// upload copies the filled entries to the device.
func (d *draws) upload(s *device.Stream, f filled) error {
	for _, part := range []span{
		{d.starts.from, d.params.from + kernels.SamplingBytes*f.rows - d.starts.from},
		{d.changes.from, kernels.AdjustmentBytes * f.changes},
		{d.masks.from, 8 * d.words * f.masks},
	} {
		if part.n == 0 {
			continue
		}
		from, n := int64(part.from), int64(part.n)
		if err := s.Upload(d.device.Slice(from, n), d.host[from:from+n]); err != nil {
			return err
		}
	}
	return nil
}

// choose makes the first rank choose the tokens of a pass whose kernels are already in
// the lane, and ends the pass.
func (b *Backend) choose(ctx context.Context, lane int) error {
	first, rows := b.ranks[0], b.pass.rows
	d, l := &first.draws, &first.lanes[lane]
	for from := 0; from < len(rows); {
		f := d.fill(rows[from:])
		last := from+f.rows == len(rows)
		err := first.unit.dev.Run(ctx, func() error {
			if err := d.upload(l.stream, f); err != nil {
				return err
			}
			if err := l.queue.Sample(first.sample(from, f)); err != nil {
				return err
			}
			if last {
				if err := first.download(l); err != nil {
					return err
				}
			}
			return b.end(lane)
		})
		if err != nil {
			return err
		}
		if from += f.rows; !last {
			if err := b.wait(lane); err != nil { // before the memory is written again
				return err
			}
		}
	}
	return nil
}

// sample returns the parameters of the choice for the rows from from on.
func (r *rank) sample(from int, f filled) kernels.Sample {
	d := &r.draws
	s := kernels.Sample{
		Out: r.out.tokens.Address + uint64(4*from), Logits: r.out.logits.Address + uint64(4*from*r.info.VocabSize),
		Params: d.address(d.params), Rows: f.rows, Vocab: r.info.VocabSize, Limit: r.info.TokenLimit,
	}
	if f.changes > 0 {
		s.Adjustments, s.Starts = d.address(d.changes), d.address(d.starts)
	}
	if f.masks > 0 {
		s.Masks, s.MaskWords = d.address(d.masks), 2*d.words
	}
	return s
}
