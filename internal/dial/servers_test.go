package dial_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/certs"
	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/dial"
	"github.com/dynctl/dynctl/internal/dial/dialtest"
	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/patience"
)

var silent = slog.New(slog.DiscardHandler)

// connected waits for a bus and sends an event to it and back.
func connected(t *testing.T, bus *events.NATS) {
	t.Helper()
	patience.Until(t, "NATS is connected", bus.Connected)
	got := make(chan struct{}, 1)
	sub, err := bus.Subscribe(t.Context(), "dialtest.>", func(events.Event) {
		select {
		case got <- struct{}{}:
		default:
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	patience.Until(t, "an event comes back", func() bool {
		if err := bus.Publish(t.Context(), "dialtest.event", "x"); err != nil {
			return false
		}
		select {
		case <-got:
			return true
		case <-time.After(100 * time.Millisecond):
			return false
		}
	})
}

// Every way to log in at NATS works with the settings for it, with and without TLS, and goes
// on by itself after a restart. Work that waits in the queue is kept.
func TestNATSOfOnesOwn(t *testing.T) {
	t.Parallel()
	folder, seed := dialtest.NewFolder(t), dialtest.NKey(t)
	seedFile := filepath.Join(t.TempDir(), "seed")
	if err := os.WriteFile(seedFile, []byte(seed+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		access dialtest.Access
		change func(*config.NATSClient)
	}{
		"open":                  {dialtest.Access{}, nil},
		"user":                  {dialtest.Access{User: "dynamo", Password: "s3cret"}, nil},
		"token":                 {dialtest.Access{Token: "s3cret"}, nil},
		"NKey":                  {dialtest.Access{NKey: seed}, nil},
		"NKey in a file":        {dialtest.Access{NKey: seed}, func(c *config.NATSClient) { c.NKey = config.Secret(seedFile) }},
		"credentials file":      {dialtest.Access{Creds: true}, nil},
		"TLS":                   {dialtest.Access{Folder: folder}, nil},
		"TLS and token":         {dialtest.Access{Folder: folder, Token: "s3cret"}, nil},
		"certificates":          {dialtest.Access{Folder: folder, Mutual: true}, nil},
		"certificates and user": {dialtest.Access{Folder: folder, Mutual: true, User: "dynamo", Password: "s3cret"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := dialtest.StartNATS(t, tc.access)
			c := server.Client()
			if tc.change != nil {
				tc.change(&c)
			}
			bus, err := dial.NATS(c, "", "test", dial.Identity{}, silent)
			if err != nil {
				t.Fatal(err)
			}
			defer bus.Close()
			connected(t, bus)
			q, err := bus.WorkQueue("dialtest", events.QueueConfig{})
			if err != nil {
				t.Fatal(err)
			}
			patience.Until(t, "work is queued", func() bool { return q.Enqueue(t.Context(), "one", []byte("x")) == nil })
			server.Kill()
			patience.Until(t, "NATS is missed", func() bool { return !bus.Connected() })
			server.Restart()
			connected(t, bus)
			patience.Until(t, "the work is there", func() bool {
				n, err := q.Waiting(t.Context())
				return err == nil && n == 1
			})
		})
	}
}

// A client is not let in with less than the server asks for, and trusts no other server.
func TestNATSRefuses(t *testing.T) {
	t.Parallel()
	folder, other := dialtest.NewFolder(t), dialtest.NewFolder(t)
	server := dialtest.StartNATS(t, dialtest.Access{Folder: folder, Mutual: true, User: "dynamo", Password: "s3cret"})
	for name, change := range map[string]func(*config.NATSClient){
		"without a user":        func(c *config.NATSClient) { c.Username, c.Password = "", "" },
		"with another password": func(c *config.NATSClient) { c.Password = "guess" },
		"without a certificate": func(c *config.NATSClient) { c.CertFile, c.KeyFile = "", "" },
		"with another certificate": func(c *config.NATSClient) {
			c.CertFile, c.KeyFile = other.Dir+"/client.pem", other.Dir+"/client-key.pem"
		},
		"with another authority":  func(c *config.NATSClient) { c.CAFile = other.Dir + "/ca.pem" },
		"with that of the system": func(c *config.NATSClient) { c.CAFile = "" },
		"without TLS": func(c *config.NATSClient) {
			*c = config.NATSClient{URL: "nats://" + c.URL[len("tls://"):], Username: c.Username, Password: c.Password}
		},
	} {
		c := server.Client()
		change(&c)
		bus, err := dial.NATS(c, "", "test", dial.Identity{}, silent)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		patience.Until(t, "the reason is known "+name, func() bool { return bus.Stats().LastError != "" })
		if bus.Connected() {
			t.Errorf("%s: connected", name)
		}
		_ = bus.Close()
	}
}

// The same for etcd: what was written is there after a restart.
func TestEtcdOfOnesOwn(t *testing.T) {
	t.Parallel()
	folder := dialtest.NewFolder(t)
	for name, access := range map[string]dialtest.Access{
		"user":                  {User: "root", Password: "s3cret"},
		"TLS":                   {Folder: folder},
		"certificates and user": {Folder: folder, Mutual: true, User: "root", Password: "s3cret"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := dialtest.StartEtcd(t, access)
			s, err := dial.Etcd(server.Client(), nil, dial.Identity{}, silent)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			put := func(value string) {
				t.Helper()
				patience.Until(t, "etcd takes "+value, func() bool {
					_, err := s.Put(t.Context(), "key", []byte(value))
					return err == nil
				})
			}
			put("before")
			server.Restart()
			patience.Until(t, "the value is there", func() bool {
				kv, err := s.Get(t.Context(), "key")
				return err == nil && string(kv.Value) == "before"
			})
			put("after")
			stranger := server.Client()
			stranger.CertFile, stranger.KeyFile, stranger.Username, stranger.Password = "", "", "", ""
			if access.Folder != nil && !access.Mutual {
				stranger.CAFile = dialtest.NewFolder(t).Dir + "/ca.pem"
			}
			x, err := dial.Etcd(stranger, nil, dial.Identity{}, silent)
			if err != nil {
				t.Fatal(err)
			}
			defer x.Close()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if kv, err := x.Get(ctx, "key"); err == nil {
				t.Errorf("a stranger reads %s", kv.Value)
			}
		})
	}
}

// Connections that are made after a change of certificates use the new ones, of a new
// authority even, while the program runs on.
func TestNewCertificatesAreUsed(t *testing.T) {
	t.Parallel()
	folder := dialtest.NewFolder(t)
	access := dialtest.Access{Folder: folder, Mutual: true}
	etcd, nats := dialtest.StartEtcd(t, access), dialtest.StartNATS(t, access)
	var followed certs.Followers
	id := dial.Identity{Certs: &followed}
	s, err := dial.Etcd(etcd.Client(), nil, id, silent)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	bus, err := dial.NATS(nats.Client(), "", "test", id, silent)
	if err != nil {
		t.Fatal(err)
	}
	defer bus.Close()
	connected(t, bus)
	if _, err := s.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	etcd.Kill()
	nats.Kill()
	next := dialtest.NewFolder(t)
	for _, name := range []string{"ca", "client", "server"} {
		for _, file := range []string{name + ".pem", name + "-key.pem"} {
			text, err := os.ReadFile(filepath.Join(next.Dir, file))
			if err = errors.Join(err, os.WriteFile(filepath.Join(folder.Dir, file), text, 0o600)); err != nil {
				t.Fatal(err)
			}
		}
	}
	etcd.Restart()
	nats.Restart()
	connected(t, bus)
	patience.Until(t, "etcd answers", func() bool { _, err := s.Ping(t.Context()); return err == nil })
	sections := ""
	for _, f := range followed.All() {
		sections += fmt.Sprint(f.Section(), " ")
	}
	if sections != "etcd nats " {
		t.Errorf("followed are %s", sections)
	}
}
