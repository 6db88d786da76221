package wire

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"syscall"
	"time"

	"github.com/dynctl/dynctl/internal/nixl"
)

// Ports is the number of ports from a given one on of which an agent takes the first free
// one: the agents of a host are given the same address.
const Ports = 128

// Listen listens by TCP on the first free one of [Ports] ports from that of listen on, any
// for 0. It returns the address that peers are told: that of the listener, unless
// advertise names another host.
func Listen(listen, advertise string) (_ net.Listener, addr string, err error) {
	ln, err := firstFree(listen)
	if err != nil {
		return nil, "", fmt.Errorf("listen: %w", err)
	}
	defer func() {
		if err != nil {
			_ = ln.Close()
		}
	}()
	host, port, err := net.SplitHostPort(ln.Addr().String())
	if err != nil {
		return nil, "", fmt.Errorf("listen address %q: %w", ln.Addr(), err)
	}
	if advertise != "" {
		host = advertise
	} else if ip := net.ParseIP(host); ip == nil || ip.IsUnspecified() {
		return nil, "", fmt.Errorf("listen on %q: peers need a host name to connect to: %w", listen, nixl.ErrInvalidParam)
	}
	if len(host) > 255 {
		return nil, "", fmt.Errorf("advertised host of %d bytes: %w", len(host), nixl.ErrInvalidParam)
	}
	return ln, net.JoinHostPort(host, port), nil
}

func firstFree(listen string) (net.Listener, error) {
	ln, err := net.Listen("tcp", listen)
	host, text, _ := net.SplitHostPort(listen)
	first, _ := strconv.Atoi(text)
	for port := first + 1; errors.Is(err, syscall.EADDRINUSE) && port < min(first+Ports, 1<<16); port++ {
		ln, err = net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	}
	if errors.Is(err, syscall.EADDRINUSE) && first > 0 {
		err = fmt.Errorf("no free port from %d to %d: %w", first, min(first+Ports, 1<<16)-1, err)
	}
	return ln, err
}

// Accept hands connections to admit until the listener is closed. When the process is out
// of file descriptors it waits a moment, or until closing is closed.
func Accept(ln net.Listener, log *slog.Logger, transport string, closing <-chan struct{}, admit func(net.Conn)) {
	for {
		nc, err := ln.Accept()
		switch {
		case err == nil:
			admit(nc)
			continue
		case errors.Is(err, net.ErrClosed):
			return
		}
		log.Warn("nixl accept failed", "transport", transport, "error", err)
		select {
		case <-time.After(10 * time.Millisecond):
		case <-closing:
		}
	}
}

// Where says in words where a peer is that is reached over the network.
func Where(self nixl.Identity, r nixl.Remote) string {
	if self.HostID != "" && self.HostID == r.HostID {
		return "another process of this host"
	}
	return "another host"
}
