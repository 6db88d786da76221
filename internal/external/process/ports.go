package process

import (
	"errors"
	"fmt"
	"net"
	"strconv"
)

// ports returns the first of n consecutive free ports of a host: the wanted ones, or any.
func (p *plan) ports(host string, want, n int) (int, error) {
	if want != 0 {
		if err := free(host, want, n); err != nil {
			return 0, fmt.Errorf("port %d is not free: %w", want, err)
		}
		p.take(want, n)
		return want, nil
	}
	var last error
	for range 100 {
		ln, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
		if err != nil {
			return 0, fmt.Errorf("no free port: %w", err)
		}
		port := ln.Addr().(*net.TCPAddr).Port
		_ = ln.Close()
		if port+n-1 > 65535 || p.given(port, n) {
			continue
		}
		if last = free(host, port, n); last == nil {
			p.take(port, n)
			return port, nil
		}
	}
	return 0, errors.Join(fmt.Errorf("no %d free ports beside each other", n), last)
}

func (p *plan) take(first, n int) {
	for port := first; port < first+n; port++ {
		p.taken[port] = true
	}
}

func (p *plan) given(first, n int) bool {
	for port := first; port < first+n; port++ {
		if p.taken[port] {
			return true
		}
	}
	return false
}

// free reports which of n ports cannot be listened at.
func free(host string, first, n int) error {
	for port := first; port < first+n; port++ {
		ln, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		if err != nil {
			return err
		}
		_ = ln.Close()
	}
	return nil
}
