package wire

import (
	"errors"
	"fmt"
	"time"

	"github.com/dynctl/dynctl/internal/nixl"
)

// Last words of a connection that is closed in order. A peer that does not know one takes
// it for any other orderly end.
const (
	// AgentCloses is that of a target whose agent is closed.
	AgentCloses = "agent closes"
	// unused is that of an initiator that nobody needs the connection for now.
	unused    = "unused"
	forgotten = "peer was forgotten"
)

// ErrOrderly is why a connection ends that its initiator closed in an orderly way.
var ErrOrderly = errors.New("closed by the peer")

// LastWord returns what an initiator says that closes a connection because of cause.
func LastWord(cause error) string {
	if errors.Is(cause, nixl.ErrUnused) {
		return unused
	}
	return forgotten
}

// Left returns what the last word of an initiator means to the target: [ErrOrderly] or
// [nixl.ErrUnused].
func Left(word []byte) error {
	if string(word) == unused {
		return nixl.ErrUnused
	}
	return ErrOrderly
}

// Goodbye returns what the last word of a target means to the initiator.
func Goodbye(word []byte) error {
	if string(word) == AgentCloses {
		return fmt.Errorf("peer closed the connection: %w", nixl.ErrRemoteClosed)
	}
	return fmt.Errorf("peer closed the connection: %s: %w", Printable(word), nixl.ErrRemoteDisconnect)
}

// AwaitLastWord lets the reader of a connection, which ends with done, come to the peer's last
// word after nothing could be written: a peer that has closed the connection in order does
// not read what was under way to it.
func AwaitLastWord(done <-chan struct{}, most time.Duration) {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}
