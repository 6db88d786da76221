package requestplane

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
)

// Beside makes the endpoints of a network server reachable inside this process, too.
// Clients made by [Memory.Over] reach them under the advertised address without a socket.
// That saves two copies and several wake-ups for each item, which delay tokens on a
// machine whose cores are all busy.
//
// The returned server replaces s and closes it. Network requests and local requests each
// have a limit of their own.
func (m *Memory) Beside(s Server, advertised string, limits Limits, log *slog.Logger) Server {
	return &nearServer{net: s, mem: m.newServer(advertised, limits, log)}
}

// Over returns a client that reaches the servers of m directly and all others through c.
// Closing it closes c.
func (m *Memory) Over(c Client) Client { return &nearClient{net: c, mem: m.NewClient()} }

type nearServer struct {
	net Server
	mem *MemoryServer
}

// Handle implements [Server].
func (s *nearServer) Handle(path string, h Handler) (func(context.Context) error, error) {
	removeNet, err := s.net.Handle(path, h)
	if err != nil {
		return nil, err
	}
	removeMem, err := s.mem.Handle(path, h)
	if err != nil {
		return nil, errors.Join(err, removeNet(context.Background())) // no request runs yet
	}
	return func(ctx context.Context) error {
		// Both refuse new requests before this waits for either.
		var wg sync.WaitGroup
		var netErr error
		wg.Go(func() { netErr = removeNet(ctx) })
		memErr := removeMem(ctx)
		wg.Wait()
		return errors.Join(memErr, netErr)
	}, nil
}

// Addr implements [Server].
func (s *nearServer) Addr() string { return s.net.Addr() }

// InFlight implements [Server].
func (s *nearServer) InFlight(path string) int { return s.net.InFlight(path) + s.mem.InFlight(path) }

// Close implements [Server].
func (s *nearServer) Close() error { return errors.Join(s.mem.Close(), s.net.Close()) }

type nearClient struct {
	net Client
	mem *MemoryClient
}

// Call implements [Client].
func (c *nearClient) Call(ctx context.Context, addr, id string, headers map[string]string, body any) (Stream, error) {
	hostport, _, err := splitAddr(addr)
	if err != nil {
		return nil, fmt.Errorf("call %s: %w", addr, err)
	}
	if c.mem.plane.has(hostport) {
		return c.mem.Call(ctx, addr, id, headers, body)
	}
	return c.net.Call(ctx, addr, id, headers, body)
}

// Close implements [Client].
func (c *nearClient) Close() error { return errors.Join(c.mem.Close(), c.net.Close()) }
