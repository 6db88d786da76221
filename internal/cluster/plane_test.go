package cluster

import "testing"

// An address leads to its plane and back, whatever the place is.
func TestPlanes(t *testing.T) {
	for _, tc := range []struct {
		plane            Plane
		at, server       string
		transport, wrong func(Transport) string
	}{
		{PlaneTCP, "10.0.0.1:7370", "10.0.0.1:7370", func(t Transport) string { return t.TCP }, func(t Transport) string { return t.HTTP + t.NATS }},
		{PlaneHTTP, "10.0.0.1:7370", "http://10.0.0.1:7370/v1/rpc", func(t Transport) string { return t.HTTP }, func(t Transport) string { return t.TCP + t.NATS }},
		{PlaneNATS, "dynctl.plane.A", "nats://dynctl.plane.A", func(t Transport) string { return t.NATS }, func(t Transport) string { return t.TCP + t.HTTP }},
	} {
		if got := tc.plane.Server(tc.at); got != tc.server {
			t.Errorf("%s: server %q", tc.plane, got)
		}
		addr := tc.server + "/7b/" + EndpointBootstrap
		if at, plane := SplitPlane(addr); at != tc.at || plane != tc.plane {
			t.Errorf("%s: split into %q, %q", addr, at, plane)
		}
		transport := TransportTo(addr)
		if transport.Address() != addr || tc.transport(transport) != addr || tc.wrong(transport) != "" {
			t.Errorf("%s: transport %+v", addr, transport)
		}
		e, err := BootstrapAt(addr)
		if err != nil || e.Address(0x7b) != addr {
			t.Errorf("%s: bootstrap %+v, %v", addr, e, err)
		}
	}
	if a := (Transport{HTTP: "http://10.0.0.1:8000"}).Address(); a != "" {
		t.Errorf("a frontend for clients is called at %q", a)
	}
	for _, addr := range []string{"nowhere", "10.0.0.1:x", "http://10.0.0.1"} {
		if e, err := BootstrapAt(addr); err == nil {
			t.Errorf("%q: %+v", addr, e)
		}
	}
}
