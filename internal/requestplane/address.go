package requestplane

import (
	"fmt"
	"strings"

	"github.com/dynctl/dynctl/internal/cluster"
)

const httpScheme = "http://"

// splitAddr splits the address of an endpoint into that of its server and the path there:
// "host:port/path", or "http://host:port/v1/rpc/path" for a server that speaks HTTP.
func splitAddr(addr string) (server, path string, err error) {
	begin, end, ok := strings.Cut(addr, "/")
	want := "host:port/path"
	if rest, http := strings.CutPrefix(addr, httpScheme); http {
		begin, end, ok = strings.Cut(rest, cluster.RPCRoot)
		want = httpScheme + "host:port" + cluster.RPCRoot + "path"
	}
	if !ok || begin == "" || end == "" {
		return "", "", fmt.Errorf("call %q: want %s: %w", addr, want, ErrCannotConnect)
	}
	return addr[:len(addr)-len(end)-1], end, nil
}

// httpServer returns the host:port of a server that speaks HTTP.
func httpServer(server string) (hostport string, ok bool) {
	rest, ok := strings.CutPrefix(server, httpScheme)
	hostport, _, _ = strings.Cut(rest, "/")
	return hostport, ok
}

// httpAddr returns the server part of addresses of a server that speaks HTTP.
func httpAddr(hostport string) string {
	return httpScheme + hostport + strings.TrimSuffix(cluster.RPCRoot, "/")
}
