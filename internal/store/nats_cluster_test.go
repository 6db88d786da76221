package store_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/dynctl/dynctl/internal/natsconn"
	"github.com/dynctl/dynctl/internal/store"
	"github.com/dynctl/dynctl/internal/store/storetest"
)

// envNATSMember has the test binary run a member of a NATS cluster instead of testing.
const envNATSMember = "STORE_TEST_NATS_MEMBER"

// natsMember is a server of a NATS cluster.
type natsMember struct {
	Name   string
	Dir    string
	Addr   string // for clients
	Peer   string // for other members
	Routes []string

	cmd *exec.Cmd
}

// serveNATS runs a member until the process is killed.
func serveNATS(config string) error {
	var m natsMember
	if err := json.Unmarshal([]byte(config), &m); err != nil {
		return err
	}
	host, port := hostPort(m.Addr)
	peerHost, peerPort := hostPort(m.Peer)
	opts := &natsserver.Options{
		ServerName: m.Name, Host: host, Port: port, JetStream: true, JetStreamMaxStore: 1 << 40, StoreDir: m.Dir, NoLog: true, NoSigs: true,
		Cluster: natsserver.ClusterOpts{Name: "test", Host: peerHost, Port: peerPort},
	}
	for _, r := range m.Routes {
		opts.Routes = append(opts.Routes, &url.URL{Scheme: "nats", Host: r})
	}
	s, err := natsserver.NewServer(opts)
	if err != nil {
		return err
	}
	s.Start()
	s.WaitForShutdown()
	return errors.New("the server has ended")
}

func hostPort(addr string) (host string, port int) {
	host, text, _ := net.SplitHostPort(addr)
	port, _ = strconv.Atoi(text)
	return host, port
}

// natsCluster is three members in processes of their own.
type natsCluster struct {
	members map[string]*natsMember
	url     string
}

func startNATSCluster(t *testing.T) *natsCluster {
	t.Helper()
	c := &natsCluster{members: map[string]*natsMember{}}
	var urls, routes []string
	dir := t.TempDir()
	for i := range 3 {
		m := &natsMember{Name: fmt.Sprint("n", i), Dir: filepath.Join(dir, fmt.Sprint(i)), Addr: freeAddr(t), Peer: freeAddr(t)}
		c.members[m.Name] = m
		urls, routes = append(urls, "nats://"+m.Addr), append(routes, m.Peer)
	}
	c.url = strings.Join(urls, ",")
	for _, m := range c.members {
		m.Routes = routes
		m.cmd = startMember(t, envNATSMember, m)
	}
	return c
}

func (c *natsCluster) open(t *testing.T) store.Store {
	t.Helper()
	s, err := store.NewNATS(store.NATSConfig{Config: natsconn.Config{URL: c.url, Name: t.Name()}}, storetest.Discard)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// leader is the member that leads the stream.
func (c *natsCluster) leader(t *testing.T, js jetstream.JetStream) (m *natsMember, replicas int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), storetest.Patience)
	defer cancel()
	for ctx.Err() == nil {
		s, err := js.Stream(ctx, bucketStream)
		if err == nil && s.CachedInfo().Cluster != nil && c.members[s.CachedInfo().Cluster.Leader] != nil {
			return c.members[s.CachedInfo().Cluster.Leader], s.CachedInfo().Config.Replicas
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatal("nobody leads the stream")
	return nil, 0
}

// settle implements [serverCluster].
func (c *natsCluster) settle(t *testing.T) {
	t.Helper()
	js := natsAPI(t, c.url)
	storetest.Eventually(t, "the stream is on three servers", func() bool { _, n := c.leader(t, js); return n == 3 })
	storetest.Eventually(t, "all members are current", func() bool {
		s, err := js.Stream(t.Context(), bucketStream)
		if err != nil || s.CachedInfo().Cluster == nil || len(s.CachedInfo().Cluster.Replicas) != 2 {
			return false
		}
		for _, r := range s.CachedInfo().Cluster.Replicas {
			if !r.Current {
				return false
			}
		}
		return true
	})
}

// killLeader implements [serverCluster].
func (c *natsCluster) killLeader(t *testing.T) (name string, start func()) {
	t.Helper()
	m, _ := c.leader(t, natsAPI(t, c.url))
	kill(m.cmd)
	return m.Name, func() { m.cmd = startMember(t, envNATSMember, m) }
}
