package tcp

import "net"

// setBuffers sets the kernel's buffers; errors leave the defaults.
func setBuffers(nc net.Conn, size int) {
	if tc, ok := nc.(*net.TCPConn); ok && size > 0 {
		_ = tc.SetReadBuffer(size)
		_ = tc.SetWriteBuffer(size)
	}
}
