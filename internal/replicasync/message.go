package replicasync

import (
	"errors"
	"fmt"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/protocol"
)

// Bounds of what is sent, and of what is accepted.
const (
	// batchMost is the number of changes in a message, as in Dynamo.
	batchMost = 256
	// hashesMost is the number of hashes of a flight. What follows them in a longer prompt is
	// not told: with blocks of 16 tokens, 131,072 tokens are.
	hashesMost = 8192
	// batchHashes is the number of hashes from which a message takes no further change.
	batchHashes = 1 << 15
	// messageMost is the number of bytes of a message: a hash has 9, a change up to 128.
	messageMost = 9*(batchHashes+hashesMost) + 128*batchMost
	// uncachedMost bounds the tokens of a prompt.
	uncachedMost = 1 << 28
	// blocksMost bounds the blocks of an output.
	blocksMost = 1 << 28
	// flightsMost is the number of flights of one frontend that another one counts.
	flightsMost = 1 << 14
	// answerHashes is the number of hashes of all flights in an answer. Flights beyond it
	// come without.
	answerHashes = 1 << 24
)

var errMalformed = errors.New("malformed message")

// decode reads a message of another frontend.
func decode(payload []byte) (m cluster.FlightEvents, err error) {
	if len(payload) > messageMost {
		return m, fmt.Errorf("%w: %d bytes", errMalformed, len(payload))
	}
	if err := protocol.Unmarshal(payload, &m); err != nil {
		return m, fmt.Errorf("%w: %w", errMalformed, err)
	}
	if m.First > 1<<62 {
		return m, fmt.Errorf("%w: position %d", errMalformed, m.First)
	}
	return m, check(m.Changes)
}

// check refuses changes that no frontend sends.
func check(changes []cluster.FlightChange) error {
	if len(changes) > batchMost {
		return fmt.Errorf("%w: %d changes", errMalformed, len(changes))
	}
	for _, c := range changes {
		ok := c.Flight > 0 && (c.Phase == cluster.RoleDecode || c.Phase == cluster.RolePrefill)
		switch c.Kind {
		case cluster.FlightBegin:
			ok = ok && c.Worker != 0 && len(c.Hashes) <= hashesMost && c.Uncached >= 0 && c.Uncached <= uncachedMost && c.Blocks == 0
		case cluster.FlightPrefilled, cluster.FlightEnd:
			ok = ok && c.Worker == 0 && len(c.Hashes) == 0 && c.Uncached == 0 && c.Blocks == 0
		case cluster.FlightGrown:
			ok = ok && c.Worker == 0 && len(c.Hashes) == 0 && c.Uncached == 0 && c.Blocks > 0 && c.Blocks <= blocksMost
		default:
			ok = false
		}
		if !ok {
			return fmt.Errorf("%w: %s of flight %d, phase %q", errMalformed, c.Kind, c.Flight, c.Phase)
		}
	}
	return nil
}

// batch returns how many of the changes go into one message.
func batch(changes []cluster.FlightChange) (n int) {
	hashes := 0
	for n < len(changes) && n < batchMost && hashes < batchHashes {
		hashes += len(changes[n].Hashes)
		n++
	}
	return n
}
