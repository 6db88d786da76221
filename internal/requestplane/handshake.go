package requestplane

import (
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// Each side greets with eight bytes, the client first: six that name the
// protocol, its version, and a status that is 0 from the client. A server that
// does not speak the client's version answers with its own and status 1.
const (
	protocolName    = "dynrp\x00"
	protocolVersion = 1
	greetingLen     = len(protocolName) + 2
	statusOK        = 0
	statusVersion   = 1
)

// errGreeting is returned when the peer does not speak this protocol.
var errGreeting = errors.New("not a request plane peer")

func greeting(status byte) []byte {
	return append([]byte(protocolName), protocolVersion, status)
}

// readGreeting returns the peer's version and status.
func readGreeting(conn net.Conn) (version, status byte, err error) {
	b := make([]byte, greetingLen)
	if _, err := io.ReadFull(conn, b); err != nil {
		return 0, 0, fmt.Errorf("greeting: %w", err)
	}
	if string(b[:len(protocolName)]) != protocolName {
		return 0, 0, fmt.Errorf("greeting %q: %w", b, errGreeting)
	}
	return b[len(b)-2], b[len(b)-1], nil
}

// greetServer runs the client's side of the greeting.
func greetServer(conn net.Conn, deadline time.Time) error {
	if err := conn.SetDeadline(deadline); err != nil {
		return err
	}
	if _, err := conn.Write(greeting(statusOK)); err != nil {
		return fmt.Errorf("greeting: %w", err)
	}
	version, status, err := readGreeting(conn)
	if err != nil {
		return err
	}
	if status != statusOK {
		return fmt.Errorf("server speaks version %d of the request plane, this client version %d", version, protocolVersion)
	}
	return conn.SetDeadline(time.Time{})
}

// greetClient runs the server's side of the greeting.
func greetClient(conn net.Conn, deadline time.Time) error {
	if err := conn.SetDeadline(deadline); err != nil {
		return err
	}
	version, _, err := readGreeting(conn)
	if err != nil {
		return err
	}
	status := byte(statusOK)
	if version != protocolVersion {
		status = statusVersion
	}
	if _, err := conn.Write(greeting(status)); err != nil {
		return fmt.Errorf("greeting: %w", err)
	}
	if status != statusOK {
		return fmt.Errorf("client speaks version %d of the request plane, this server version %d", version, protocolVersion)
	}
	return conn.SetDeadline(time.Time{})
}
