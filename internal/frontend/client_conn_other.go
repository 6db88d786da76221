//go:build !linux

package frontend

import (
	"errors"
	"net"
)

// Elsewhere a reset after the end of the stream cannot be awaited: a client that shuts
// down its side counts as gone.

func halfClosed(net.Conn) bool { return false }

func waitReset(net.Conn) error { return errors.ErrUnsupported }
