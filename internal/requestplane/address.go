package requestplane

import (
	"fmt"
	"strings"

	"github.com/dynctl/dynctl/internal/cluster"
)

// splitAddr splits the address of an endpoint into that of its server and the path there:
// "host:port/path", or "http://host:port/v1/rpc/path" for a server that speaks HTTP.
func splitAddr(addr string) (server, path string, err error) {
	hostport, http := cluster.SplitPlane(addr)
	server = hostport
	if http {
		server = cluster.HTTPPlane(hostport)
	}
	path, ok := strings.CutPrefix(addr, server+"/")
	if !ok || hostport == "" || path == "" {
		return "", "", fmt.Errorf("call %q: want host:port/path or %spath: %w", addr, cluster.HTTPPlane("host:port")+"/", ErrCannotConnect)
	}
	return server, path, nil
}
