package store

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/nats-io/nats.go"

	"github.com/dynctl/dynctl/internal/cluster"
)

// Subjects of the stream, after its prefix. They are valid keys of a bucket, so that tools
// for buckets can read them.
const (
	natsKeys   = "k." // a key: its value, or that it was deleted
	natsLeases = "l." // a lease: its TTL, or that it has ended
	natsBeats  = "b." // its renewals
	natsPurge  = "p"  // somebody removes what is dead
)

const (
	natsHeaderLease = "Dynctl-Lease" // that owns a key
	natsHeaderOp    = "KV-Operation" // of buckets
	natsDelete      = "DEL"

	// natsLongestSubject is the length that keys may have as subjects. The server reads
	// 4 KiB of a line.
	natsLongestSubject = 2 << 10
)

// natsChange is one message of the stream.
type natsChange struct {
	seq     Revision
	at      time.Time // by the server's clock; with seq it names the message
	subject string    // without the stream's prefix
	kind    string    // one of the constants above; empty for what is none of ours

	key   string             // of natsKeys
	id    cluster.InstanceID // of natsLeases and natsBeats
	gone  bool               // deleted or ended
	value []byte
	lease cluster.InstanceID
	ttl   time.Duration
}

// natsEscape turns a key into one token of a subject.
func natsEscape(key string) string {
	var b strings.Builder
	for i := range len(key) {
		switch c := key[i]; {
		case c < unicode.MaxASCII && (unicode.IsLetter(rune(c)) || unicode.IsDigit(rune(c))), c == '/', c == '-', c == '_':
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "=%02X", c)
		}
	}
	return b.String()
}

// natsUnescape reverses natsEscape. ok is false for what that never returns.
func natsUnescape(token string) (key string, ok bool) {
	var b strings.Builder
	for i := 0; i < len(token); i++ {
		if token[i] != '=' {
			b.WriteByte(token[i])
			continue
		}
		var c byte
		if i+3 > len(token) {
			return "", false
		}
		if _, err := fmt.Sscanf(token[i+1:i+3], "%02X", &c); err != nil {
			return "", false
		}
		b.WriteByte(c)
		i += 2
	}
	key = b.String()
	return key, key != "" && natsEscape(key) == token
}

// decodeNATS reads a message. A message that nobody of us wrote is a change of no kind.
func decodeNATS(prefix string, m *nats.Msg, seq Revision, at time.Time) natsChange {
	subject, _ := strings.CutPrefix(m.Subject, prefix)
	c := natsChange{seq: seq, at: at, subject: subject, gone: m.Header.Get(natsHeaderOp) != "", value: m.Data}
	var err error
	kind, rest := subject[:min(len(natsKeys), len(subject))], subject[min(len(natsKeys), len(subject)):]
	switch kind {
	case natsKeys:
		var ok bool
		if c.key, ok = natsUnescape(rest); !ok {
			return c
		}
		if id := m.Header.Get(natsHeaderLease); id != "" {
			c.lease, err = cluster.ParseInstanceID(id)
		}
	case natsLeases:
		if c.id, err = cluster.ParseInstanceID(rest); err == nil && !c.gone {
			c.ttl, err = time.ParseDuration(string(m.Data))
		}
	case natsBeats:
		c.id, err = cluster.ParseInstanceID(rest)
	case natsPurge:
	default:
		return c
	}
	if err == nil {
		c.kind = kind
	}
	return c
}

// message returns a message of the stream with a condition, if there is one.
func (n *NATS) message(subject string, data []byte, c natsCondition) *nats.Msg {
	m := nats.NewMsg(n.prefix + subject)
	m.Data = data
	if c.header != "" {
		m.Header.Set(c.header, strconv.FormatInt(int64(c.last), 10))
	}
	return m
}

// keyMessage returns the message of a value.
func (n *NATS) keyMessage(key string, value []byte, lease cluster.InstanceID, c natsCondition) *nats.Msg {
	m := n.message(natsKeys+natsEscape(key), value, c)
	if lease != 0 {
		m.Header.Set(natsHeaderLease, lease.String())
	}
	return m
}

// marker returns a message that says that a key or lease is gone.
func (n *NATS) marker(subject string, c natsCondition) *nats.Msg {
	m := n.message(subject, nil, c)
	m.Header.Set(natsHeaderOp, natsDelete)
	return m
}

// natsCondition is what the server checks before it takes a message. The zero value is none.
type natsCondition struct {
	header string
	last   Revision
}

// at is the condition that the stream's last message is that of a revision.
func at(rev Revision) natsCondition { return natsCondition{"Nats-Expected-Last-Sequence", rev} }

// lastOf is the condition that the subject's last message is that of a revision, or that there
// is none.
func lastOf(rev Revision) natsCondition {
	return natsCondition{"Nats-Expected-Last-Subject-Sequence", rev}
}
