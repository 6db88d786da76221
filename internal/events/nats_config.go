package events

import (
	"time"

	"github.com/dynctl/dynctl/internal/natsconn"
)

// Config says how a [NATS] connects, and what waits while it does not.
type Config struct {
	natsconn.Config

	// Outbox is the number of events that may wait for the connection. Default 8192.
	Outbox int
}

const (
	defaultOutbox  = 8192
	maxOutboxBytes = 16 << 20 // total size of all waiting events

	// firstRetry and longestRetry bound the pauses of a consumer that fails.
	firstRetry   = 50 * time.Millisecond
	longestRetry = time.Second
)
