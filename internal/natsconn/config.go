package natsconn

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
)

// Config holds the address and credentials of NATS. If several credentials are set, the
// first of these is used: user and password, token, NKey, credentials file.
type Config struct {
	URL             string // nats://host:port, tls://host:port, or several with commas
	User, Password  string
	Token           string
	NKey            string // its seed, or a file with it
	CredentialsFile string
	// TLS returns the settings of one new connection. A URL with tls:// is needed then. Nil
	// means as the URL demands.
	TLS func() *tls.Config
	// TLSFirst starts TLS before the server has sent its greeting.
	TLSFirst bool
	Name     string // shown in the server's list of connections
}

const (
	dialTimeout  = 2 * time.Second
	pingInterval = 3 * time.Second // two unanswered pings mean a dead connection
	firstRetry   = 50 * time.Millisecond
	// longestRetry is shorter than the shortest lease: who waits for longer after an outage
	// loses it to those who came back at once.
	longestRetry = time.Second
)

// Options returns the options of a connection that is made in the background, now and after
// every disconnect, without end. It fails for a configuration that can never work.
func (c Config) Options() ([]nats.Option, error) {
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
		// Nothing is buffered while disconnected: what is sent then must fail at once
		// instead of arriving late.
		nats.ReconnectBufSize(-1),
	}
	switch {
	case c.User != "":
		opts = append(opts, nats.UserInfo(c.User, c.Password))
	case c.Token != "":
		opts = append(opts, nats.Token(c.Token))
	case c.NKey != "":
		opt, err := nkeyOption(c.NKey)
		if err != nil {
			return nil, fmt.Errorf("nats nkey: %w", err)
		}
		opts = append(opts, opt)
	case c.CredentialsFile != "":
		opts = append(opts, nats.UserCredentials(c.CredentialsFile))
	}
	if c.TLS != nil {
		if strings.HasPrefix(c.URL, "nats://") {
			return nil, errors.New("nats: a TLS configuration needs a tls:// URL")
		}
		opts = append(opts, secured(c.TLS))
	}
	if c.TLSFirst {
		opts = append(opts, nats.TLSHandshakeFirst())
	}
	return opts, nil
}

// secured makes the library ask for the settings of TLS at each connection, so that changed
// certificates are used.
func secured(settings func() *tls.Config) nats.Option {
	return func(o *nats.Options) error {
		first := settings()
		o.Secure, o.TLSConfig = true, first
		if len(first.Certificates) > 0 {
			o.TLSCertCB = func() (tls.Certificate, error) {
				if now := settings().Certificates; len(now) > 0 {
					return now[0], nil
				}
				return first.Certificates[0], nil
			}
		}
		if first.RootCAs != nil {
			o.RootCAsCB = func() (*x509.CertPool, error) { return settings().RootCAs, nil }
		}
		return nil
	}
}

// nkeyOption logs in with a seed, or the one in a file, which is read at each connection.
func nkeyOption(seedOrFile string) (nats.Option, error) {
	keys, err := nkeys.FromSeed([]byte(strings.TrimSpace(seedOrFile)))
	if err != nil {
		if _, err := os.Stat(seedOrFile); err != nil {
			return nil, errors.New("it is neither a seed nor a file with one") // and must not be printed
		}
		return nats.NkeyOptionFromSeed(seedOrFile)
	}
	public, err := keys.PublicKey()
	if err != nil {
		return nil, err
	}
	return nats.Nkey(public, keys.Sign), nil
}

// reconnectDelay doubles from firstRetry, less up to half of it, so that the clients of a
// server that failed do not come back together. One attempt tries every server once.
func reconnectDelay(attempts int) time.Duration {
	d := min(firstRetry<<min(max(attempts-1, 0), 10), longestRetry)
	return d - rand.N(d/2+1)
}
