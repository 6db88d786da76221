package store_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/dynctl/dynctl/internal/store"
	"github.com/dynctl/dynctl/internal/store/storetest"
)

// envEtcdMember has the test binary run a member of an etcd cluster instead of testing.
const envEtcdMember = "STORE_TEST_ETCD_MEMBER"

// etcdMember is a server of an etcd cluster.
type etcdMember struct {
	Name    string
	Dir     string
	Addr    string // for clients
	Peer    string // for other members
	Cluster string // all members

	cmd *exec.Cmd
}

// serveEtcd runs a member until the process is killed.
func serveEtcd(config string) error {
	var m etcdMember
	if err := json.Unmarshal([]byte(config), &m); err != nil {
		return err
	}
	cfg := embed.NewConfig()
	cfg.Name, cfg.Dir, cfg.TickMs, cfg.ElectionMs = m.Name, m.Dir, 100, 1000
	cfg.ListenClientUrls = []url.URL{{Scheme: "http", Host: m.Addr}}
	cfg.AdvertiseClientUrls = cfg.ListenClientUrls
	cfg.ListenPeerUrls = []url.URL{{Scheme: "http", Host: m.Peer}}
	cfg.AdvertisePeerUrls = cfg.ListenPeerUrls
	cfg.InitialCluster = m.Cluster
	cfg.EnableGRPCGateway = false
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	e, err := embed.StartEtcd(cfg)
	if err != nil {
		return err
	}
	return errors.Join(<-e.Err(), errors.New("the server has ended"))
}

// etcdCluster is three members in processes of their own.
type etcdCluster struct {
	members []*etcdMember
	addrs   []string
}

func startEtcdCluster(t *testing.T) *etcdCluster {
	t.Helper()
	c := &etcdCluster{}
	dir := t.TempDir()
	var all []string
	for i := range 3 {
		m := &etcdMember{Name: fmt.Sprint("e", i), Dir: filepath.Join(dir, fmt.Sprint(i)), Addr: freeAddr(t), Peer: freeAddr(t)}
		c.members, c.addrs = append(c.members, m), append(c.addrs, m.Addr)
		all = append(all, m.Name+"=http://"+m.Peer)
	}
	for _, m := range c.members {
		m.Cluster = strings.Join(all, ",")
		m.cmd = startMember(t, envEtcdMember, m)
	}
	return c
}

// open implements [serverCluster].
func (c *etcdCluster) open(t *testing.T) store.Store {
	t.Helper()
	s, err := store.NewEtcd(store.EtcdConfig{Endpoints: c.addrs}, storetest.Discard)
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

// statuses asks all members; those that do not answer are missing.
func (c *etcdCluster) statuses(t *testing.T) map[*etcdMember]*clientv3.StatusResponse {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: c.addrs, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }() // it was only read
	out := map[*etcdMember]*clientv3.StatusResponse{}
	for _, m := range c.members {
		ctx, cancel := context.WithTimeout(t.Context(), storetest.Patience/20)
		if st, err := client.Status(ctx, m.Addr); err == nil {
			out[m] = st
		}
		cancel()
	}
	return out
}

// settle implements [serverCluster].
func (c *etcdCluster) settle(t *testing.T) {
	t.Helper()
	storetest.Eventually(t, "all members have what the leader has", func() bool {
		all := c.statuses(t)
		var leader *clientv3.StatusResponse
		for _, st := range all {
			if st.Leader == st.Header.MemberId {
				leader = st
			}
		}
		if leader == nil || len(all) != len(c.members) {
			return false
		}
		for _, st := range all {
			if st.Leader != leader.Leader || st.RaftAppliedIndex+100 < leader.RaftAppliedIndex { // others write meanwhile
				return false
			}
		}
		return true
	})
}

// killLeader implements [serverCluster].
func (c *etcdCluster) killLeader(t *testing.T) (name string, start func()) {
	t.Helper()
	var leader *etcdMember
	storetest.Eventually(t, "a member leads", func() bool {
		for m, st := range c.statuses(t) {
			if st.Leader == st.Header.MemberId {
				leader = m
			}
		}
		return leader != nil
	})
	kill(leader.cmd)
	return leader.Name, func() { leader.cmd = startMember(t, envEtcdMember, leader) }
}
