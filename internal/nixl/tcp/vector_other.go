//go:build !linux

package tcp

import "net"

// vector reads from a socket into several pieces of memory with one system call; not
// on this system.
type vector struct{}

func newVector(net.Conn) *vector { return nil }

func (*vector) read([][]byte) (int, error) { panic("never made") }
