package requestplane

import (
	"fmt"
	"strings"

	"github.com/dynctl/dynctl/internal/cluster"
)

// splitAddr splits the address of an endpoint into that of its server and the path there:
// "host:port/path", "http://host:port/v1/rpc/path" for a server that speaks HTTP, or
// "nats://subject/path".
func splitAddr(addr string) (server, path string, err error) {
	at, plane := cluster.SplitPlane(addr)
	server = plane.Server(at)
	path, ok := strings.CutPrefix(addr, server+"/")
	if !ok || at == "" || path == "" {
		return "", "", fmt.Errorf("call %q: want host:port/path, %s/path or %s/path: %w", addr, cluster.PlaneHTTP.Server("host:port"), cluster.PlaneNATS.Server("subject"), ErrCannotConnect)
	}
	return server, path, nil
}
