package certs

import (
	"crypto/tls"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dynctl/dynctl/internal/config"
)

// lookEvery is the least time between two looks at the files for new connections.
const lookEvery = time.Second

// Follower holds the certificate, key and authorities of one kind of connections as their
// files hold them.
type Follower struct {
	files config.TLSFiles
	log   *slog.Logger
	now   func() time.Time

	current atomic.Pointer[contents]
	refused atomic.Pointer[refusal] // nil while the files hold what is in use

	looking sync.Mutex // held by whoever looks at the files; others use what is known
	looked  time.Time
}

// refusal says why what the files hold is not used.
type refusal struct {
	sum [32]byte // of what was refused
	err error
}

// Follow reads the files. It fails if they cannot be read, or do not belong together; an
// expired certificate is accepted. log gets later changes.
func Follow(files config.TLSFiles, log *slog.Logger) (*Follower, error) {
	return follow(files, log, time.Now)
}

func follow(files config.TLSFiles, log *slog.Logger, now func() time.Time) (*Follower, error) {
	f := &Follower{files: files, log: log, now: now, looked: now()}
	c, err := read(files)
	if err == nil {
		err = c.parse(files)
	}
	if err != nil {
		return nil, err
	}
	f.current.Store(c)
	return f, nil
}

// Section names the settings of the files, such as "frontend".
func (f *Follower) Section() string { return f.files.Section() }

// Look reads the files and uses what they hold from now on, if it is valid. Otherwise what
// was used before stays in use, and the log says so once.
func (f *Follower) Look() {
	f.looking.Lock()
	defer f.looking.Unlock()
	f.look()
}

// look is Look; the caller holds f.looking.
func (f *Follower) look() {
	f.looked = f.now()
	was := f.current.Load()
	next, err := read(f.files)
	if next.sum == was.sum {
		f.refused.Store(nil)
		return
	}
	if err == nil {
		err = next.parse(f.files)
	}
	if err == nil {
		err = next.outlives(was, f.looked)
	}
	if err != nil {
		if old := f.refused.Swap(&refusal{next.sum, err}); old == nil || old.sum != next.sum {
			f.log.Warn("a changed certificate cannot be used, the one before stays in use", "setting", f.files.Named(), "error", err)
		}
		return
	}
	f.refused.Store(nil)
	f.current.Store(next)
	f.log.Info("a changed certificate is used from now on", "setting", f.files.Named(), "ends", next.ends)
}

// latest returns what new connections use.
func (f *Follower) latest() *contents {
	if f.looking.TryLock() {
		if f.now().Sub(f.looked) >= lookEvery {
			f.look()
		}
		f.looking.Unlock()
	}
	return f.current.Load()
}

// TLS returns settings for one new connection, as the client or as the server. The
// authorities are those of the files, or nil for those of the system.
func (f *Follower) TLS() *tls.Config {
	c := f.latest()
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: c.authorities, ClientCAs: c.authorities}
	if c.pair != nil {
		cfg.Certificates = []tls.Certificate{*c.pair}
	}
	return cfg
}

// Server returns settings for all connections of a server, which offers the application
// protocols. With authorities, clients must have a certificate of one of them.
func (f *Follower) Server(protocols ...string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: protocols,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			cfg := f.TLS()
			cfg.NextProtos = protocols
			if cfg.ClientCAs != nil {
				cfg.ClientAuth = tls.RequireAndVerifyClientCert
			}
			return cfg, nil
		},
	}
}

// Ends returns when the certificate ends, or all authorities if that is earlier; zero
// without either.
func (f *Follower) Ends() time.Time { return f.current.Load().ends }
