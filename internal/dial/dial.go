// Package dial connects to etcd and NATS as the configuration says: the one place
// where settings become connections, shared by dynamod and dynctl.
//
// [Etcd] and [NATS] return connections that the caller closes.
package dial

import (
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/store"
)

// Etcd returns a store over the given endpoints, or over the configured ones when
// there are none.
func Etcd(c config.EtcdClient, endpoints []string, log *slog.Logger) (*store.Etcd, error) {
	if len(endpoints) > 0 {
		c.Endpoints = endpoints
	}
	tls, err := c.TLS(os.ReadFile)
	if err != nil {
		return nil, err
	}
	s, err := store.NewEtcd(store.EtcdConfig{
		Endpoints: c.Endpoints, Username: c.Username, Password: string(c.Password), TLS: tls,
	}, log)
	if err != nil {
		return nil, fmt.Errorf("connect to etcd: %w", err)
	}
	return s, nil
}

// NATS returns a bus over url, or over the configured one when it is empty. It
// connects in the background; name is what the server calls the connection.
func NATS(c config.NATSClient, url, name string, log *slog.Logger) (*events.NATS, error) {
	if url == "" {
		url = c.URL
	}
	if url == "" { // the library would take its own default
		return nil, errors.New("connect to NATS: no server is configured")
	}
	bus, err := events.NewNATS(events.Config{
		URL: url, User: c.Username, Password: string(c.Password), Token: string(c.Token),
		CredentialsFile: c.CredsFile, Name: name,
	}, log)
	if err != nil {
		return nil, fmt.Errorf("connect to NATS: %w", err)
	}
	return bus, nil
}
