package dial

import (
	"context"
	"crypto/tls"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/credentials"
)

// howToJoin is the advice for a missing or different secret.
const howToJoin = "run \"dynctl credentials --join\" on a machine of its cluster, and \"dynctl join\" or \"dynamod --join\" here with the token it prints"

// Diagnose examines addresses of etcd that failed, and returns the probable cause in the
// way they were contacted; nil when it finds none.
func Diagnose(ctx context.Context, addrs []string, id Identity) error {
	for _, addr := range addrs {
		if err := id.diagnose(ctx, addr); err != nil {
			return err
		}
	}
	return nil
}

func (id Identity) diagnose(ctx context.Context, addr string) error {
	_, host, found := strings.Cut(addr, "://")
	if !found {
		host = addr
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	// Nothing is sent over this connection: it only reads the certificate.
	d := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13}} //nolint:gosec // see above
	conn, err := d.DialContext(ctx, "tcp", host)
	if err != nil {
		return nil // not reachable, or without TLS
	}
	defer conn.Close()
	peers := conn.(*tls.Conn).ConnectionState().PeerCertificates //nolint:forcetypeassert // a tls.Dialer returns a *tls.Conn
	if len(peers) == 0 || !slices.Contains(peers[0].DNSNames, credentials.ServerName) {
		return nil
	}
	issuer, ok := strings.CutPrefix(peers[0].Issuer.CommonName, credentials.AuthorityName)
	secret := id.Secret
	switch {
	case !ok:
		return nil
	case secret.IsZero():
		return fmt.Errorf("%s: %w: %s", addr, ErrNoSecret, howToJoin)
	case issuer != secret.Fingerprint():
		return fmt.Errorf("%s: it has the secret %q, and this machine %s: %s", addr, issuer, secret.Fingerprint(), howToJoin)
	case !strings.HasPrefix(addr, config.SchemeDynamod):
		return fmt.Errorf("%s: it runs inside a dynamod: write %s%s", addr, config.SchemeDynamod, host)
	}
	return nil
}
