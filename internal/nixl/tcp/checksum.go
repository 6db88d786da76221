package tcp

import (
	"fmt"
	"hash/crc32"

	"github.com/dynctl/dynctl/internal/nixl"
)

// castagnoli is the polynomial that processors have instructions for.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum continues a CRC-32C. That of a part begins with the body of its access
// frame, so that what arrives for other memory than was meant does not match either.
func checksum(sum uint32, b []byte) uint32 { return crc32.Update(sum, castagnoli, b) }

// noteSum is the checksum of a notification, 0 where there are none.
func (c *conn) noteSum(msg []byte) uint64 {
	if !c.sums {
		return 0
	}
	return uint64(checksum(0, msg))
}

// errChecksum says that bytes changed on the way.
func errChecksum(sent uint64, received uint32) error {
	return fmt.Errorf("checksum differs, bytes changed on the way: sent %#x, received %#x: %w", sent, received, nixl.ErrMismatch)
}
