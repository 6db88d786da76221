package events

import (
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// Config holds the address and credentials of NATS. If several credentials are set, the
// first of these is used: user and password, token, nkey seed file, credentials file.
type Config struct {
	URL             string // nats://host:port, tls://host:port, or several with commas
	User, Password  string
	Token           string
	NKeySeedFile    string
	CredentialsFile string
	TLS             *tls.Config // nil: as the URL demands
	// TLSFirst starts TLS before the server has sent its greeting.
	TLSFirst bool
	Name     string // shown in the server's list of connections

	// Outbox is the number of events that may wait for the connection. Default 8192.
	Outbox int
}

const (
	defaultOutbox  = 8192
	maxOutboxBytes = 16 << 20 // total size of all waiting events

	dialTimeout  = 2 * time.Second
	pingInterval = 3 * time.Second // two unanswered pings mean a dead connection
	firstRetry   = 50 * time.Millisecond
	longestRetry = time.Second
)

// options turns the configuration into options of the client library.
func (c Config) options() ([]nats.Option, error) {
	opts := []nats.Option{
		nats.Name(c.Name),
		nats.Timeout(dialTimeout),
		nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1),
		nats.CustomReconnectDelay(reconnectDelay),
		nats.IgnoreAuthErrorAbort(),
		nats.PingInterval(pingInterval),
		nats.MaxPingsOutstanding(2),
		nats.FlusherTimeout(dialTimeout),
		// Nothing is buffered while disconnected: events wait in the bounded outbox,
		// and requests to JetStream must fail at once instead of arriving late.
		nats.ReconnectBufSize(-1),
	}
	switch {
	case c.User != "":
		opts = append(opts, nats.UserInfo(c.User, c.Password))
	case c.Token != "":
		opts = append(opts, nats.Token(c.Token))
	case c.NKeySeedFile != "":
		opt, err := nats.NkeyOptionFromSeed(c.NKeySeedFile)
		if err != nil {
			return nil, fmt.Errorf("nats nkey %s: %w", c.NKeySeedFile, err)
		}
		opts = append(opts, opt)
	case c.CredentialsFile != "":
		opts = append(opts, nats.UserCredentials(c.CredentialsFile))
	}
	if c.TLS != nil {
		if strings.HasPrefix(c.URL, "nats://") {
			return nil, errors.New("nats: a TLS configuration needs a tls:// URL")
		}
		opts = append(opts, nats.Secure(c.TLS))
	}
	if c.TLSFirst {
		opts = append(opts, nats.TLSHandshakeFirst())
	}
	return opts, nil
}

// reconnectDelay doubles from firstRetry. One attempt tries every server once.
func reconnectDelay(attempts int) time.Duration {
	return min(firstRetry<<min(max(attempts-1, 0), 10), longestRetry)
}
