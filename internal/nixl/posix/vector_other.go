//go:build !linux

package posix

import (
	"fmt"
	"runtime"

	"github.com/dynctl/dynctl/internal/nixl"
)

const noatime = 0 // nothing to be asked for

func readv(int, [][]byte, int64) (int, error)  { return 0, errSystem }
func writev(int, [][]byte, int64) (int, error) { return 0, errSystem }

var errSystem = fmt.Errorf("no vectored file access on %s: %w", runtime.GOOS, nixl.ErrNotSupported)
