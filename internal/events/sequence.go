package events

import (
	"math/rand/v2"
	"time"
)

// maxPublisherID keeps ids exact for readers that decode numbers as floats.
const maxPublisherID = 1<<53 - 1

// numbering gives each subject a publisher id and its events their sequence
// numbers. It is not safe for concurrent use.
type numbering map[string]*numbered

type numbered struct{ publisher, next uint64 }

// take returns the id of the subject's publisher and the number of its next event.
func (n numbering) take(subject string) (publisher, sequence uint64) {
	p := n[subject]
	if p == nil {
		p = &numbered{publisher: 1 + rand.Uint64N(maxPublisherID)}
		n[subject] = p
	}
	p.next++
	return p.publisher, p.next - 1
}

const (
	maxPublishers   = 16384            // that a subscription remembers
	publisherMemory = 10 * time.Minute // for those that fell silent
)

// gapCounter finds gaps in the sequence numbers of many publishers. It is not safe for
// concurrent use.
type gapCounter map[uint64]*lastSeen

type lastSeen struct {
	next uint64 // expected sequence
	at   time.Time
}

// missed returns how many events of the publisher are missing before this one. For the
// first event of a publisher that is 0, because it may have published before this
// subscription.
func (g gapCounter) missed(publisher, sequence uint64, now time.Time) uint64 {
	p := g[publisher]
	if p == nil {
		if len(g) >= maxPublishers {
			g.forget(now)
		}
		g[publisher] = &lastSeen{sequence + 1, now}
		return 0
	}
	p.at = now
	if sequence < p.next { // a duplicate
		return 0
	}
	n := sequence - p.next
	p.next = sequence + 1
	return n
}

// forget drops silent publishers or, if too many remain, all.
func (g gapCounter) forget(now time.Time) {
	for id, p := range g {
		if now.Sub(p.at) > publisherMemory {
			delete(g, id)
		}
	}
	if len(g) >= maxPublishers {
		clear(g)
	}
}
