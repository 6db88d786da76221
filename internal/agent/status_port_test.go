package agent

import (
	"net"
	"testing"
)

// The port of the run before is taken again, unless somebody else has it or another one is
// configured.
func TestStatusPortStays(t *testing.T) {
	n := startTestNode(t)
	port := func(addr string) (ln net.Listener, port string) {
		t.Helper()
		ln, err := n.listenAsBefore(addr)
		if err != nil {
			t.Fatal(err)
		}
		_, port, _ = net.SplitHostPort(ln.Addr().String())
		if stored := n.dir.StatusPort(); stored != port {
			t.Errorf("port %s is stored, not %s", stored, port)
		}
		return ln, port
	}
	first, one := port("127.0.0.1:0")
	second, two := port("127.0.0.1:0") // the first is taken
	if one == two {
		t.Errorf("two servers at port %s", one)
	}
	first.Close()
	second.Close()
	third, again := port("127.0.0.1:0")
	third.Close()
	fourth, configured := port("127.0.0.1:" + one)
	fourth.Close()
	if again != two || configured != one {
		t.Errorf("ports %s, %s, then %s and %s", one, two, again, configured)
	}
	if _, err := n.listenAsBefore("nowhere"); err == nil {
		t.Error("an address without a port is taken")
	}
}
