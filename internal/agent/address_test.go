package agent

import (
	"net"
	"slices"
	"testing"

	"github.com/dynctl/dynctl/internal/config"
)

// other returns an address of this machine that is not on loopback, if it has one.
func other(t *testing.T) string {
	t.Helper()
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() && n.IP.To4() != nil {
			return n.IP.String()
		}
	}
	return ""
}

func TestAddresses(t *testing.T) {
	for _, tc := range []struct {
		name, advertise, configured string
		listen                      string // where the listener ends up
		bound, told                 string // its address, and what others are told
	}{
		{"one machine", "127.0.0.1", config.DefaultAnyListen, config.DefaultAnyListen, "127.0.0.1:5000", "127.0.0.1:5000"},
		{"one machine, by name", "localhost", config.DefaultAnyListen, config.DefaultAnyListen, "127.0.0.1:5000", "localhost:5000"},
		{"network, by name", "gpu-7", config.DefaultAnyListen, ":7370", "[::]:5000", "gpu-7:5000"},
		{"network, address of a gateway", "203.0.113.9", config.DefaultAnyListen, ":7370", "[::]:5000", "203.0.113.9:5000"},
		{"configured port on loopback stays there", "gpu-7", "127.0.0.1:7000", "127.0.0.1:7000", "127.0.0.1:7000", "gpu-7:7000"},
		{"all interfaces", "gpu-7", "0.0.0.0:7000", "0.0.0.0:7000", "[::]:7000", "gpu-7:7000"},
		{"all interfaces, nothing to advertise", "127.0.0.1", "0.0.0.0:7000", "0.0.0.0:7000", "[::]:7000", "127.0.0.1:7000"},
		{"one interface, nothing to advertise", "127.0.0.1", "10.0.0.7:7000", "10.0.0.7:7000", "10.0.0.7:7000", "10.0.0.7:7000"},
		{"one interface behind a name", "gpu-7", "10.0.0.7:7000", "10.0.0.7:7000", "10.0.0.7:7000", "gpu-7:7000"},
		{"IPv6", "2001:db8::7", config.DefaultAnyListen, ":7370", "[::]:5000", "[2001:db8::7]:5000"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := &Agent{cfg: testConfig(t)}
			a.cfg.Node.AdvertiseHost = tc.advertise
			if got := a.listenAt(tc.configured, config.DefaultAnyListen, "7370"); got != tc.listen {
				t.Errorf("listens at %s, want %s", got, tc.listen)
			}
			if got := a.advertise(tc.bound); got != tc.told {
				t.Errorf("advertises %s, want %s", got, tc.told)
			}
		})
	}
	a := &Agent{cfg: testConfig(t), status: &statusServer{addr: "127.0.0.1:9000"}}
	a.cfg.Node.AdvertiseHost = "gpu-7"
	if got := a.statusAddr(); got != "127.0.0.1:9000" {
		t.Errorf("a status server on loopback is at %s", got)
	}
	a.status.addr = "[::]:9000"
	if got := a.statusAddr(); got != "gpu-7:9000" {
		t.Errorf("a status server on all interfaces is at %s", got)
	}
	if got := a.advertise("no port"); got != "no port" {
		t.Errorf("got %s", got)
	}
}

// The stores keep their ports when they leave loopback.
func TestStoresLeaveLoopback(t *testing.T) {
	a := &Agent{cfg: testConfig(t)}
	for advertise, want := range map[string]string{"127.0.0.1": "127.0.0.1:2379", "gpu-7": ":2379", "203.0.113.9": ":2379"} {
		a.cfg.Node.AdvertiseHost = advertise
		if got := a.listenAt(config.DefaultEtcdListen, config.DefaultEtcdListen, ""); got != want {
			t.Errorf("advertised as %s, etcd listens at %s, want %s", advertise, got, want)
		}
		if got := a.listenAt("10.0.0.5:1", config.DefaultEtcdListen, ""); got != "10.0.0.5:1" {
			t.Errorf("a configured address became %s", got)
		}
		names := a.serverNames()
		for _, host := range []string{advertise, "localhost", "127.0.0.1"} {
			if !slices.Contains(names, host) {
				t.Errorf("%s is missing in the names of a certificate, %v", host, names)
			}
		}
	}
}

func TestListensAtItsOwnAddress(t *testing.T) {
	host := other(t)
	if host == "" {
		t.Skip("this machine has no address but loopback")
	}
	a := &Agent{cfg: testConfig(t)}
	a.cfg.Node.AdvertiseHost = host
	if got := a.listenAt(config.DefaultAnyListen, config.DefaultAnyListen, "7370"); got != net.JoinHostPort(host, "7370") {
		t.Errorf("listens at %s, want port 7370 of %s", got, host)
	}
}
