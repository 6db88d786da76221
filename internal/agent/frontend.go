package agent

import (
	"context"
	"fmt"
	"os"

	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/frontend"
	"github.com/dynctl/dynctl/internal/media/source"
	"github.com/dynctl/dynctl/internal/undo"
)

// mediaGuard makes what loads the images that requests name.
func (a *Agent) mediaGuard() (*source.Guard, error) {
	c := a.cfg.Multimodal
	cfg := source.Config{Directory: c.AllowedLocalMediaPath, MaxBytes: int64(c.MaxFileSizeMB) << 20, Private: c.AllowPrivate}
	switch c.AllowedLocalMediaPath {
	case config.MediaNone:
		cfg.Directory = ""
	case "":
		cfg.Directory, cfg.OnlyEmbeddings = os.TempDir(), true
	}
	g, err := source.New(cfg)
	if err != nil {
		return nil, fmt.Errorf("multimodal.allowed_local_media_path: %w", err)
	}
	return g, nil
}

// startFrontend binds the HTTP frontend of this node; Run serves it.
func (a *Agent) startFrontend(ctx context.Context, back *undo.Stack) (err error) {
	c := a.cfg.Frontend
	secure, err := a.serverTLS(c.TLSFiles(), frontend.Protocols()...)
	if err != nil {
		return err
	}
	guard, err := a.mediaGuard()
	if err != nil {
		return err
	}
	back.Push("stop loading images", func(context.Context) error { return guard.Close() })
	a.front, err = frontend.New(ctx, frontend.Config{
		Runtime: a.drt, Node: a.cfg.Node.Name, Host: c.Host, Port: c.Port, AdvertiseHost: a.cfg.Node.AdvertiseHost, TLS: secure,
		BodyLimit: int64(c.BodyLimit), APIKey: string(c.APIKey), TrustedProxies: c.TrustedProxies, CORSOrigins: c.CORSOrigins, AllowedHosts: c.AllowedHosts,
		RequestTimeout: c.RequestTimeout, WriteTimeout: c.WriteTimeout,
		MigrationLimit: c.MigrationLimit, NoKVEvents: !a.cfg.Router.KVEvents, KVTTL: a.cfg.Router.KVTTL,
		NoReplicaSync: !a.cfg.Router.ReplicaSync, Settings: a.settings.frontend, SetBusy: a.settings.setBusy, Media: guard, Metrics: a.metrics, Log: a.log,
	})
	if err != nil {
		return err
	}
	if secure == nil && !onLoopback(c.Host) {
		a.log.Warn("the frontend is reached by other hosts without TLS: keys, prompts and answers can be read on the way (frontend.tls_cert_file)", "url", a.front.URL())
	}
	back.Push("close the frontend", func(context.Context) error { a.front.Close(); return nil })
	return nil
}
