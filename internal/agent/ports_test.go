package agent

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/dynctl/dynctl/internal/config"
)

// Where an address is advertised, the status server has a fixed port, and leaves loopback
// only where it tells others something.
func TestStatusListens(t *testing.T) {
	for _, tc := range []struct {
		name, advertise, configured, key string
		profiles                         bool
		want                             string
	}{
		{"one machine", "127.0.0.1", config.DefaultAnyListen, "k", false, config.DefaultAnyListen},
		{"without a key", "gpu-7", config.DefaultAnyListen, "", false, "127.0.0.1:7371"},
		{"with a key", "gpu-7", config.DefaultAnyListen, "k", false, ":7371"},
		{"profiles", "gpu-7", config.DefaultAnyListen, "k", true, "127.0.0.1:7371"},
		{"configured", "gpu-7", "0.0.0.0:9", "", false, "0.0.0.0:9"},
	} {
		a := &Agent{cfg: testConfig(t)}
		a.cfg.Node.AdvertiseHost, a.cfg.Status.Listen, a.cfg.Frontend.APIKey, a.cfg.Status.Profiles = tc.advertise, tc.configured, config.Secret(tc.key), tc.profiles
		if got := a.statusListen(); got != tc.want {
			t.Errorf("%s: listens at %s, want %s", tc.name, got, tc.want)
		}
	}
}

// A fixed port that is taken is replaced, a configured one is not.
func TestFixedPortIsTaken(t *testing.T) {
	var log bytes.Buffer
	a := &Agent{cfg: testConfig(t), log: slog.New(slog.NewTextHandler(&log, nil))}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	addr := taken.Addr().String()
	listen := func(addr string) error {
		ln, err := net.Listen("tcp", addr)
		if err == nil {
			_ = ln.Close()
		}
		return err
	}
	if err := a.onFixedPort("status", addr, addr, listen); !errors.Is(err, syscall.EADDRINUSE) || log.Len() > 0 {
		t.Errorf("configured: %v, %s", err, &log)
	}
	if err := a.onFixedPort("status", addr, config.DefaultAnyListen, listen); err != nil || !strings.Contains(log.String(), "the port is taken") {
		t.Errorf("default: %v, %s", err, &log)
	}
}

// A node that others cannot reach says so.
func TestWarnsOfLoopback(t *testing.T) {
	for _, tc := range []struct {
		name, advertise, etcd, nats string
		warns                       bool
	}{
		{"one machine", "127.0.0.1", "dynamod://127.0.0.1:2379", "dynamod://127.0.0.1:4222", false},
		{"stores elsewhere", "127.0.0.1", "203.0.113.9:2379", "nats://127.0.0.1:4222", true},
		{"NATS elsewhere", "127.0.0.1", "localhost:2379", "nats://u:p@gpu-5:4222,nats://gpu-6:4222", true},
		{"advertised", "203.0.113.7", "203.0.113.9:2379", "nats://203.0.113.9:4222", false},
	} {
		var log bytes.Buffer
		a := &Agent{cfg: testConfig(t), log: slog.New(slog.NewTextHandler(&log, nil)), stores: &stores{addrs: []string{tc.etcd}, natsURL: tc.nats}}
		a.cfg.Node.AdvertiseHost = tc.advertise
		a.warnOfLoopback()
		if got := strings.Contains(log.String(), "--node-advertise-host"); got != tc.warns {
			t.Errorf("%s: %s", tc.name, &log)
		}
		if strings.Contains(log.String(), "u:p") {
			t.Errorf("%s: a password in %s", tc.name, &log)
		}
	}
}
