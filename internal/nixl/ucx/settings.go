package ucx

import (
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/dynctl/dynctl/internal/nixl/ucx/ucp"
)

// settings are options of UCX by name, without the prefix UCX_.
type settings map[string]string

// Environment returns what UCX is told with these options on this machine, as variables of
// the environment for another program that shall use it alike, and whether bytes are
// moved by RDMA.
func (o Options) Environment() (variables []string, rdma bool) {
	devices := rdmaDevices("/")
	s := o.settings(len(devices) > 0)
	for _, set := range s.list() {
		variables = append(variables, "UCX_"+set.Name+"="+set.Value)
	}
	return variables, len(devices) > 0 && oneSided(s["TLS"])
}

// settings returns those of a transport; what the environment sets comes first.
func (o Options) settings(rdma bool) settings {
	s := settings{
		"TLS": "tcp",
		// A process that dies is noticed within this, even if nothing is sent to it.
		"KEEPALIVE_INTERVAL": "1s",
	}
	if rdma {
		s["TLS"] = "rc,dc,ud" // package tcp serves where these do not reach
	}
	if len(o.Devices) > 0 && !rdma {
		s["NET_DEVICES"] = strings.Join(o.Devices, ",")
	}
	maps.Copy(s, o.Settings)
	for name := range s {
		if v, set := os.LookupEnv("UCX_" + name); set {
			s[name] = v
		}
	}
	return s
}

func (s settings) list() (out []ucp.Setting) {
	for _, name := range slices.Sorted(maps.Keys(s)) {
		out = append(out, ucp.Setting{Name: name, Value: s[name]})
	}
	return out
}

// oneSided reports whether all transports of a list of UCX_TLS carry out one-sided
// access in hardware, through a queue pair of the connection, so that closing that ends
// the access. UCX emulates it over others, or writes from process to process.
func oneSided(tls string) bool {
	for name := range strings.SplitSeq(tls, ",") {
		name, _, _ = strings.Cut(name, ":")
		kind, _, _ := strings.Cut(name, "_")
		switch kind {
		case "rc", "dc", "ud", "ib", "cuda", "gdr", "self":
		default:
			return false
		}
	}
	return true
}
