package agent

import (
	"context"
	"crypto/tls"
	"fmt"
	"time"

	"github.com/dynctl/dynctl/internal/certs"
	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/handshake"
)

// certsEvery is the interval at which the files of certificates are looked at while no
// connection begins.
const certsEvery = 10 * time.Second

// alarmCertificate begins the subjects of alarms about certificates. A section of the
// settings follows, such as "frontend".
const alarmCertificate = "certificate-"

// follow reads the files of certificates, and follows them from then on.
func (a *Agent) follow(files config.TLSFiles) (*certs.Follower, error) {
	return a.certs.Follow(files, a.log)
}

// serverTLS returns the settings of a server that offers application protocols; nil if it
// has no certificate.
func (a *Agent) serverTLS(files config.TLSFiles, protocols ...string) (*tls.Config, error) {
	if files.Cert.Value == "" {
		return nil, nil
	}
	f, err := a.follow(files)
	if err != nil {
		return nil, err
	}
	return f.Server(protocols...), nil
}

// secureNIXL sets the settings of transfers over TCP: with certificates from files, or
// without any if the configuration only wants encryption.
func (a *Agent) secureNIXL() error {
	n := a.cfg.NIXL
	if files := n.TLSFiles(); files.Cert.Value != "" {
		f, err := a.follow(files)
		if err != nil {
			return err
		}
		a.nixlTLS = func() *tls.Config {
			cfg := f.TLS()
			cfg.ServerName = n.TLSServerName
			return cfg
		}
		return nil
	}
	if !n.Encrypt {
		return nil
	}
	cfg, err := handshake.Ephemeral()
	if err != nil {
		return fmt.Errorf("encrypt transfers: %w", err)
	}
	a.nixlTLS = func() *tls.Config { return cfg }
	return nil
}

// watchCerts looks at the files of certificates until ctx ends. It raises an alarm before a
// certificate ends, and when changed files cannot be used.
func (a *Agent) watchCerts(ctx context.Context) {
	all := a.certs.All()
	if len(all) == 0 {
		return
	}
	for _, f := range all {
		a.alarms.metrics.Alarm(alarmCertificate+f.Section(), false)
	}
	tick := time.NewTicker(certsEvery)
	defer tick.Stop()
	for {
		a.checkCerts(all)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (a *Agent) checkCerts(all []*certs.Follower) {
	for _, f := range all {
		f.Look()
		about := alarmCertificate + f.Section()
		if ends := f.Ends(); !ends.IsZero() {
			a.alarms.metrics.CertificateEnds(f.Section(), ends)
		}
		if text := f.Problem(); text != "" {
			a.alarms.raise(about, text)
		} else {
			a.alarms.clear(about)
		}
	}
}
