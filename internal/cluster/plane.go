package cluster

import "strings"

// Plane is a network of the request plane.
type Plane string

// The planes.
const (
	PlaneTCP  Plane = "tcp"
	PlaneHTTP Plane = "http"
	PlaneNATS Plane = "nats"
)

// RPCRoot begins the paths of endpoints on servers of the http request plane.
const RPCRoot = "/v1/rpc/"

const (
	httpScheme = "http://"
	natsScheme = "nats://"
)

// Server returns the address of a server of the plane, which is at a host:port, or at a
// subject of NATS.
func (p Plane) Server(at string) string {
	switch p {
	case PlaneHTTP:
		return httpScheme + at + strings.TrimSuffix(RPCRoot, "/")
	case PlaneNATS:
		return natsScheme + at
	}
	return at
}

// SplitPlane returns where the server of an address is, a host:port or a subject of NATS, and
// on which plane. Addresses of endpoints are those of their server, a slash and a path.
func SplitPlane(addr string) (at string, p Plane) {
	p = PlaneTCP
	rest, ok := strings.CutPrefix(addr, httpScheme)
	if ok {
		p = PlaneHTTP
	} else if rest, ok = strings.CutPrefix(addr, natsScheme); ok {
		p = PlaneNATS
	}
	at, _, _ = strings.Cut(rest, "/")
	return at, p
}

// Transport is the address of an instance; exactly one field is set.
type Transport struct {
	// TCP is "host:port/{instance id hex}/{endpoint}" for the tcp request plane.
	TCP string `json:"tcp,omitempty"`
	// HTTP is "http://host:port/v1/rpc/{instance id hex}/{endpoint}" for the http request
	// plane, or the base URL of a plain HTTP service, used by frontends.
	HTTP string `json:"http,omitempty"`
	// NATS is "nats://subject/{instance id hex}/{endpoint}" for the nats request plane.
	NATS string `json:"nats,omitempty"`
	// Foreign is the subject of an instance of Dynamo that takes requests over NATS.
	Foreign string `json:"nats_tcp,omitempty"`
}

// Unspoken says why an instance cannot be called whose transport is none of ours; empty if
// the transport is one.
func (t Transport) Unspoken() string {
	switch {
	case t.TCP != "" || t.HTTP != "" || t.NATS != "":
		return ""
	case t.Foreign != "":
		return "it takes requests over NATS as Dynamo does (nats_tcp, subject " + t.Foreign + "), which is not supported"
	}
	return "its registration names no transport that is known (tcp, http, nats)"
}

// TransportTo returns the transport for the address of an endpoint on the request plane.
func TransportTo(addr string) Transport {
	switch _, p := SplitPlane(addr); p {
	case PlaneHTTP:
		return Transport{HTTP: addr}
	case PlaneNATS:
		return Transport{NATS: addr}
	}
	return Transport{TCP: addr}
}

// Address returns the address on the request plane, or "" for a plain HTTP service.
func (t Transport) Address() string {
	switch {
	case strings.Contains(t.HTTP, RPCRoot):
		return t.HTTP
	case t.NATS != "":
		return t.NATS
	}
	return t.TCP
}
