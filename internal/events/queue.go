package events

import (
	"context"
	"errors"
	"strings"
	"time"
)

// ErrFull is returned by Enqueue when the queue holds its maximum of messages,
// waiting and in work together.
var ErrFull = errors.New("queue full")

// WorkQueue hands each message to one worker at a time, at least once, oldest
// first. A message leaves the queue when it is acknowledged, dead-lettered,
// removed, or older than the queue's maximum age. All methods are safe for
// concurrent use.
type WorkQueue interface {
	// Enqueue stores a message. The id makes retries safe: within
	// [QueueConfig.DedupWindow] a second message with the same id is accepted and
	// ignored, also after the first was done or removed. It fails with ErrFull,
	// or, within half a second, with ErrUnavailable; then the message may still
	// have been stored.
	Enqueue(ctx context.Context, id string, body []byte) error

	// Consume pulls messages and runs up to concurrency handlers at a time until ctx
	// ends. It then waits for the handlers and returns the cause of ctx, or ErrClosed if
	// the queue's connection was closed for good. It pulls a message only when a handler
	// is free, reports progress for messages in work, and reconnects by itself.
	//
	// The handler's context ends with ctx. If a handler returns or panics without Ack,
	// Nak or Term, the message is delivered again.
	Consume(ctx context.Context, concurrency int, h func(ctx context.Context, d *Delivery)) error

	// Waiting counts the messages that no worker has had yet. It asks the server once, and
	// may miss one that was enqueued just now. It fails with ErrUnavailable.
	Waiting(ctx context.Context) (int, error)

	// Depth counts messages by state. It fails with ErrUnavailable.
	Depth(ctx context.Context) (Depth, error)

	// Remove takes a message that this value has enqueued out of the queue. A worker that
	// already has the message is not told, but the message is not delivered again. An
	// unknown id is not an error. If it fails with ErrUnavailable, the message leaves the queue
	// when the server is back.
	Remove(ctx context.Context, id string) error
}

// Depth is the size of a work queue.
type Depth struct {
	Pending      int // waiting for a worker
	InWork       int // held by a worker, or waiting for redelivery
	DeadLettered int // dead-lettered, with a reason
}

// QueueConfig configures a work queue. Zero fields mean the defaults. All users of a
// queue must use the same one; the last one to connect wins.
type QueueConfig struct {
	// MaxMessages bounds waiting and in-work messages together. Default 4096.
	MaxMessages int
	// MaxAge is the age at which a message is deleted undone. Default 10 min.
	MaxAge time.Duration
	// DedupWindow is the time for which the queue remembers ids, at most MaxAge. Default 2 min.
	DedupWindow time.Duration
	// AckWait is the time a worker may be silent about a message before another worker
	// gets it. Default 5 s.
	AckWait time.Duration
	// MaxDeliver is the number of deliveries after which a message is dead-lettered.
	// Default 5.
	MaxDeliver int
	// MaxDead is the number of dead letters to keep, the newest. Default 1000.
	MaxDead int
}

func (c QueueConfig) withDefaults() QueueConfig {
	if c.MaxMessages <= 0 {
		c.MaxMessages = 4096
	}
	if c.MaxAge <= 0 {
		c.MaxAge = 10 * time.Minute
	}
	if c.DedupWindow <= 0 {
		c.DedupWindow = 2 * time.Minute
	}
	c.DedupWindow = min(c.DedupWindow, c.MaxAge)
	if c.AckWait <= 0 {
		c.AckWait = 5 * time.Second
	}
	if c.MaxDeliver <= 0 {
		c.MaxDeliver = 5
	}
	if c.MaxDead <= 0 {
		c.MaxDead = 1000
	}
	return c
}

// progressEvery is the interval of progress reports for a message in work. Three are due
// within AckWait, so that two may be lost.
func (c QueueConfig) progressEvery() time.Duration { return c.AckWait * 3 / 10 }

// QueueName returns the name of a namespace's prefill queue, which is the name of
// its stream.
func QueueName(namespace string) string { return slug(namespace + "_prefill_queue") }

// DeadName returns the name of the stream of a namespace's dead letters.
func DeadName(namespace string) string { return slug(namespace + "_prefill_dead") }

// slug makes a valid stream name: lower case letters, digits, "-" and "_", not beginning
// with "_".
func slug(s string) string {
	s = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' || r == '_' {
			return r
		}
		return '_'
	}, strings.ToLower(s))
	return strings.TrimLeft(s, "_")
}
