package kvevents

import "github.com/dynctl/dynctl/internal/cluster"

// Sink receives the hashes that the prefix cache of a server gained and lost, in blocks of the
// router. It is called while others wait, so it must not block.
type Sink interface {
	// Stored says that consecutive blocks of a prompt are held, the first at a position,
	// behind the block with the hash parent; nil at position 0.
	Stored(parent *uint64, start int, blocks []cluster.KVStoredBlock)
	Removed(hashes []uint64, reason string)
	// Cleared says that none is left of so many blocks.
	Cleared(blocks int)
}

// Reasons of removals.
const (
	reasonRemoved = "removed" // the server says so
	reasonCleared = "cleared" // all blocks of a rank were removed, or are no longer known
)

// Blocks in one call of a sink.
const (
	maxStored  = 512
	maxRemoved = 4096
)

// output collects changes into few calls of a sink.
type output struct {
	sink   Sink
	parent uint64
	start  int
	run    []cluster.KVStoredBlock
	gone   []uint64
}

// stored adds a block behind the one with the hash prev.
func (o *output) stored(prev uint64, at int, block cluster.KVStoredBlock) {
	if len(o.gone) > 0 {
		o.flush(reasonRemoved)
	}
	if n := len(o.run); n > 0 && (at != o.start+n || prev != o.run[n-1].BlockHash || n == maxStored) {
		o.flush(reasonRemoved)
	}
	if len(o.run) == 0 {
		o.parent, o.start = prev, at
	}
	o.run = append(o.run, block)
}

// removed adds a block that is gone.
func (o *output) removed(hash uint64) {
	if len(o.run) > 0 {
		o.flush(reasonRemoved)
	}
	o.gone = append(o.gone, hash)
}

// cleared replaces the removals that wait by the news that nothing is left of n blocks.
func (o *output) cleared(n int) {
	o.gone = nil
	if n > 0 {
		o.sink.Cleared(n)
	}
}

// flush tells the sink what waits. The sink keeps what it gets.
func (o *output) flush(reason string) {
	if len(o.run) > 0 {
		var parent *uint64
		if o.start > 0 {
			p := o.parent
			parent = &p
		}
		o.sink.Stored(parent, o.start, o.run)
		o.run = nil
	}
	for len(o.gone) > 0 {
		n := min(len(o.gone), maxRemoved)
		o.sink.Removed(o.gone[:n:n], reason)
		o.gone = o.gone[n:]
	}
	o.gone = nil
}
