package gpu

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/dynctl/dynctl/internal/cuda/device"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/protocol"
)

// pass is a part of a batch that goes through the layers together.
type pass struct {
	// single holds pieces of one token, which attend as decoding sequences. several holds
	// the others. Tokens are stored in this order.
	single, several []piece
	rows            []row
	choices         int // rows whose token the device chooses
	shape           shape
}

// piece is a run of tokens of one entry of a batch.
type piece struct {
	seq     *engine.BatchSeq
	from, n int // of seq.Tokens
}

func (p *piece) start() int { return p.seq.Start + p.from }

// row is a token of the pass whose logits, or whose next token, are requested.
type row struct {
	token  int
	logits []float32
	choice *engine.Choice
}

// shape holds all that the kernels of a pass depend on, except its inputs.
type shape struct {
	tokens          int
	single, several int // pieces
	rows            int
	gather          bool // rows are not simply all tokens in order
	longest         int  // tokens of a sequence, the new ones included
	most            int  // tokens of a piece
	tableBlocks     int
}

// cursor is a position in a batch, between passes.
type cursor struct{ seq, offset int }

// fill takes tokens from the batch until the pass is full. It reports whether there are
// any.
func (p *pass) fill(c *cursor, batch []engine.BatchSeq, o *Options) bool {
	p.single, p.several, p.rows, p.choices = p.single[:0], p.several[:0], p.rows[:0], 0
	p.shape = shape{}
	for c.seq < len(batch) && p.shape.tokens < o.MaxTokens && len(p.single)+len(p.several) < o.MaxSeqs {
		s := &batch[c.seq]
		next := piece{s, c.offset, min(len(s.Tokens)-c.offset, o.MaxTokens-p.shape.tokens)}
		if next.n == 1 && !o.BatchInvariant {
			p.single = append(p.single, next)
		} else {
			p.several = append(p.several, next)
		}
		p.shape.tokens += next.n
		p.shape.most = max(p.shape.most, next.n)
		p.shape.longest = max(p.shape.longest, next.start()+next.n)
		if c.offset += next.n; c.offset == len(s.Tokens) {
			c.seq, c.offset = c.seq+1, 0
		}
	}
	p.shape.single, p.shape.several = len(p.single), len(p.several)
	p.shape.tableBlocks = blocksOf(p.shape.longest, o.BlockSize)
	return p.shape.tokens > 0
}

// write writes the inputs for a shape that may be larger than the pass. The surplus
// entries store nothing and attend to nothing.
func (p *pass) write(in *inputs, s shape, blockSize int) {
	token, seq := 0, 0
	for _, pieces := range [2][]piece{p.single, p.several} {
		for i := range pieces {
			piece := &pieces[i]
			in.starts.host[seq] = int32(token)
			in.lengths.host[seq] = int32(piece.start() + piece.n)
			table := in.tables.host[seq*s.tableBlocks:][:s.tableBlocks]
			clear(table[copy(table, piece.seq.Blocks):]) // blocks after the last token are not read, but must exist
			seq++
			for t, id := range piece.seq.Tokens[piece.from:][:piece.n] {
				position := piece.start() + t
				in.ids.host[token], in.positions.host[token] = int32(id), int32(position)
				in.slots.host[token] = piece.seq.Blocks[position/blockSize]*int32(blockSize) + int32(position%blockSize)
				token++
			}
			if piece.from+piece.n == len(piece.seq.Tokens) && (piece.seq.Logits != nil || piece.seq.Choice != nil) {
				p.rows = append(p.rows, row{token - 1, piece.seq.Logits, piece.seq.Choice})
				if piece.seq.Choice != nil {
					p.choices++
				}
			}
		}
	}
	in.starts.host[seq] = int32(token)
	for ; token < s.tokens; token++ {
		in.ids.host[token], in.positions.host[token], in.slots.host[token] = 0, 0, -1
	}
	for ; seq < s.single+s.several; seq++ {
		in.lengths.host[seq] = 0
		clear(in.tables.host[seq*s.tableBlocks:][:s.tableBlocks])
	}
}

// Step computes a batch. It returns [engine.ErrBatch], [ErrLost] or the context's cause.
func (b *Backend) Step(ctx context.Context, batch []engine.BatchSeq) error {
	if err := b.step(ctx, batch); err != nil {
		return fmt.Errorf("step: %w", err)
	}
	return nil
}

func (b *Backend) step(ctx context.Context, batch []engine.BatchSeq) error {
	if b.blocks == 0 {
		return fmt.Errorf("%w: the block pool is not allocated", engine.ErrBatch)
	}
	if err := engine.CheckBatch(batch, b.info, b.blocks); err != nil {
		return err
	}
	for at := (cursor{}); b.pass.fill(&at, batch, &b.options); {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := b.runPass(ctx); err != nil {
			return err
		}
	}
	return nil
}

// runPass computes the filled pass.
func (b *Backend) runPass(ctx context.Context) error {
	p := &b.pass
	lane, s, graph := normal, p.shape, b.graphs.find(p)
	if graph != nil {
		lane, s = urgent, graph.shape
	}
	first := b.ranks[0]
	p.write(&first.in, s, b.info.KV.BlockSize)
	b.describeRows(&s, graph == nil)
	err := first.unit.dev.Run(ctx, func() error {
		for _, r := range b.ranks { // the inputs of all are the same memory of the host
			if err := r.lanes[lane].stream.Upload(r.in.used(s)); err != nil {
				return err
			}
		}
		if graph != nil {
			if err := b.replay(graph.graph); err != nil {
				return err
			}
		} else if err := b.enqueue(lane, s); err != nil {
			return err
		}
		if p.choices > 0 {
			return nil
		}
		if err := first.download(&first.lanes[lane]); err != nil {
			return err
		}
		return b.end(lane)
	})
	if err == nil && p.choices > 0 { // meanwhile the device computes the logits
		err = b.choose(ctx, lane)
	}
	if err != nil {
		// Work that is already in the streams must end before its memory is used again.
		return errors.Join(err, b.flush(lane))
	}
	if err := b.wait(lane); err != nil {
		return err
	}
	for i, r := range p.rows {
		if r.logits != nil {
			b.deliver(r.logits, first.out.host[i*b.info.VocabSize:][:b.info.VocabSize])
		}
		if r.choice != nil {
			id := first.out.chosen[i]
			r.choice.Token, r.choice.Broken = uint32(id), id < 0
		}
	}
	return nil
}

// download copies the results of a pass to the host. It copies only requested logits,
// because they are large.
func (r *rank) download(l *lane) error {
	size := int64(r.info.VocabSize) * 4
	for i, row := range r.pass.rows {
		if at := int64(i) * size; row.logits != nil {
			if err := l.stream.Download(r.out.mem[at:][:size], r.out.logits.Slice(at, size)); err != nil {
				return err
			}
		}
	}
	if r.pass.choices == 0 {
		return nil
	}
	n := int64(4 * len(r.pass.rows))
	return l.stream.Download(r.out.ids[:n], r.out.tokens.Slice(0, n))
}

// replay launches a graph after the uploads of all ranks, and makes their streams wait
// for it.
func (b *Backend) replay(g *device.Graph) error {
	first := &b.ranks[0].lanes[urgent]
	if err := errors.Join(b.join(urgent), first.stream.Replay(g)); err != nil || len(b.ranks) == 1 {
		return err
	}
	err := first.stream.Record(first.mark)
	for _, r := range b.ranks[1:] {
		err = errors.Join(err, r.lanes[urgent].stream.After(first.mark))
	}
	return err
}

// end marks the end of a pass.
func (b *Backend) end(lane int) error {
	for _, r := range b.ranks {
		l := &r.lanes[lane]
		if err := l.stream.Record(l.end); err != nil {
			return err
		}
	}
	return nil
}

// flush waits for the work that a failed pass left in the streams of a lane.
func (b *Backend) flush(lane int) error {
	if b.device.Err() != nil {
		b.device.spread()
		return nil
	}
	if err := b.end(lane); err != nil {
		return err
	}
	return b.wait(lane)
}

// describeRows writes the inputs of the rows with requested results. For a pass without a
// graph (eager) it also sets their number in the shape.
func (b *Backend) describeRows(s *shape, eager bool) {
	in, size := &b.ranks[0].in, int64(b.weights.config.Hidden)*2
	gather := len(b.pass.rows) != s.tokens
	for i, r := range b.pass.rows {
		gather = gather || r.token != i
		in.rows.host[i], in.packed.host[i] = int64(r.token)*size, int64(i)*size
	}
	if eager {
		s.rows, s.gather = len(b.pass.rows), gather
	}
}

// Chooses implements [engine.Chooser]. Logits with a soft cap are capped on the host, so
// only their largest can be chosen on the device.
func (b *Backend) Chooses(o *protocol.SamplingOptions) bool {
	return o.Temperature <= 0 || b.weights.config.LogitCap == 0
}

// deliver copies logits to the caller's buffer and applies the soft cap.
func (b *Backend) deliver(to, logits []float32) {
	limit := b.weights.config.LogitCap
	if limit == 0 {
		copy(to, logits)
		return
	}
	for i, v := range logits {
		to[i] = float32(limit * math.Tanh(float64(v)/limit))
	}
}
