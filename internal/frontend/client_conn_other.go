//go:build !linux

package frontend

import (
	"errors"
	"net"
)

// On other systems the frontend cannot wait for a reset after the end of the stream. A
// client that shuts down its side counts as gone.

func halfClosed(net.Conn) bool { return false }

func waitReset(net.Conn) error { return errors.ErrUnsupported }
