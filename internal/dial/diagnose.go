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

// howToJoin tells what to do where the secret is missing or another one.
const howToJoin = "run \"dynctl credentials --join\" on a machine of its cluster, and \"dynctl join\" or \"dynamod --join\" here with what that prints"

// Diagnose looks at addresses of etcd that did not answer as they should, and returns what
// is wrong with the way in which they were asked; nil when that cannot be told.
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
	// Nothing is sent over this connection: it only looks at the certificate.
	d := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13}} //nolint:gosec // see above
	conn, err := d.DialContext(ctx, "tcp", host)
	if err != nil {
		return nil // not there, or without TLS
	}
	defer conn.Close()
	peers := conn.(*tls.Conn).ConnectionState().PeerCertificates //nolint:forcetypeassert // that of a tls.Dialer
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
