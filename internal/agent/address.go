package agent

import (
	"errors"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/dial"
)

// Ports of a node that advertises a host of its network, where none is configured: fixed
// ones, which firewalls and Prometheus can be told. NIXL takes one for each worker, from
// its port on; docs/production.md lists them.
const (
	requestPlanePort = "7370"
	statusPort       = "7371"
	nixlPort         = "7372"
)

// listenAt returns where to listen for other nodes; standard is the default, on loopback.
// A node that advertises a host of its network must be reachable there. Listeners without
// a configured address then leave loopback: they use that address if this machine has it,
// else all addresses, and port in place of the default's if it is any.
func (a *Agent) listenAt(configured, standard, port string) string {
	host := a.cfg.Node.AdvertiseHost
	if configured != standard || onLoopback(host) {
		return configured
	}
	if !ofThisMachine(host) {
		host = ""
	}
	if _, fixed, err := net.SplitHostPort(standard); err == nil && fixed != "0" {
		port = fixed
	}
	return net.JoinHostPort(host, port)
}

// statusListen returns where the status server listens. It leaves loopback by itself only
// with an API key, without which it tells nothing to other hosts, and without profiles.
func (a *Agent) statusListen() string {
	c := a.cfg
	at := a.listenAt(c.Status.Listen, config.DefaultAnyListen, statusPort)
	if at != c.Status.Listen && (c.Frontend.APIKey == "" || c.Status.Profiles) {
		return net.JoinHostPort("127.0.0.1", statusPort)
	}
	return at
}

// onFixedPort runs listen at addr, which listenAt returned for configured. If the port is
// one of ours and taken, as by another dynamod of this host, it runs listen again with any
// free port and says so. It never replaces a configured address.
func (a *Agent) onFixedPort(what, addr, configured string, listen func(addr string) error) error {
	err := listen(addr)
	if addr == configured || !errors.Is(err, syscall.EADDRINUSE) {
		return err
	}
	host, port, _ := net.SplitHostPort(addr)
	a.log.Warn("the port is taken: another one is used, which a firewall may not admit", "server", what, "port", port)
	return listen(net.JoinHostPort(host, "0"))
}

// warnOfLoopback says when the cluster is on other machines, which are told to reach this
// one at its loopback address.
func (a *Agent) warnOfLoopback() {
	if !onLoopback(a.cfg.Node.AdvertiseHost) {
		return
	}
	if host, _, err := net.SplitHostPort(a.cfg.RequestPlane.Listen); err == nil && !onLoopback(host) {
		return
	}
	for _, addr := range append(slices.Clone(dial.Servers(a.stores.addrs, a.stores.natsURL)), a.stores.natsURL) {
		if host := hostOf(addr); host != "" && !onLoopback(host) && !ofThisMachine(host) {
			a.log.Warn("other nodes are told to reach this one at its loopback address, which they cannot: set --node-advertise-host",
				"advertised", a.cfg.Node.AdvertiseHost, "cluster_at", host)
			return
		}
	}
}

// hostOf is the host of an address with or without a scheme and a port.
func hostOf(addr string) string {
	if _, rest, ok := strings.Cut(addr, "://"); ok {
		addr = rest
	}
	addr, _, _ = strings.Cut(addr, ",")
	addr = addr[strings.LastIndex(addr, "@")+1:]
	if host, _, err := net.SplitHostPort(addr); err == nil {
		return host
	}
	return addr
}

// serverNames returns all names and addresses at which the servers of this node may be
// reached, for their certificate. Programs of the cluster do not check them: see
// [credentials.ServerName].
func (a *Agent) serverNames() []string {
	names := []string{"localhost", a.cfg.Node.AdvertiseHost}
	if host, err := os.Hostname(); err == nil {
		names = append(names, host)
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		addrs = nil // so tools that compare addresses must use a name
	}
	for _, addr := range addrs {
		if n, ok := addr.(*net.IPNet); ok {
			names = append(names, n.IP.String())
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// interfaceOf returns the name of the network interface that has the address host, such
// as "lo", or "" if no interface of this machine has it.
func interfaceOf(host string) string {
	ip := net.ParseIP(host)
	if ip == nil {
		return ""
	}
	interfaces, err := net.Interfaces()
	if err != nil {
		return ""
	}
	for _, i := range interfaces {
		addrs, err := i.Addrs()
		if err != nil {
			continue
		}
		for _, a := range addrs {
			if n, ok := a.(*net.IPNet); ok && (n.IP.Equal(ip) || ip.IsLoopback() && n.IP.IsLoopback() && n.Contains(ip)) {
				return i.Name
			}
		}
	}
	return ""
}

// advertiseHost returns the host at which other nodes reach a listener: the configured
// one, or the listener's own address if the configured one is the default and the
// listener's is better.
func (a *Agent) advertiseHost(listen string) string {
	host, _, err := net.SplitHostPort(listen)
	if ip := net.ParseIP(host); err == nil && ip != nil && !ip.IsUnspecified() && !ip.IsLoopback() && onLoopback(a.cfg.Node.AdvertiseHost) {
		return host
	}
	return a.cfg.Node.AdvertiseHost
}

// advertise returns the address at which other nodes reach a listener of this node.
func (a *Agent) advertise(addr string) string {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	return net.JoinHostPort(a.advertiseHost(addr), port)
}

// storesHost returns the host at which other machines reach the servers in this process,
// or "" if one of them listens on loopback only.
func (a *Agent) storesHost() string {
	listen := ""
	for _, addr := range []string{a.natsListen(), a.etcdListen()} {
		if addr == "" {
			continue
		}
		if host, _, err := net.SplitHostPort(addr); err != nil || onLoopback(host) {
			return ""
		}
		listen = addr
	}
	if host := a.advertiseHost(listen); listen != "" && !onLoopback(host) {
		return host
	}
	return ""
}

// etcdListen returns where the etcd server in this process listens, or "" if there is none.
func (a *Agent) etcdListen() string {
	if a.stores.etcd == nil {
		return ""
	}
	return a.stores.etcd.Listen()
}

// natsListen returns where the NATS server in this process listens, or "" if there is
// none.
func (a *Agent) natsListen() string {
	if a.stores.nats == nil {
		return ""
	}
	return a.stores.nats.Listen()
}

// statusAddr returns the address of the status server. It stays on loopback unless
// configured otherwise.
func (a *Agent) statusAddr() string {
	if host, _, err := net.SplitHostPort(a.status.addr); err != nil || onLoopback(host) {
		return a.status.addr
	}
	return a.advertise(a.status.addr)
}

func onLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// ofThisMachine reports whether host is an address of one of its interfaces.
func ofThisMachine(host string) bool {
	addrs, err := net.InterfaceAddrs()
	ip := net.ParseIP(host)
	if err != nil || ip == nil {
		return false
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.Equal(ip) {
			return true
		}
	}
	return false
}
