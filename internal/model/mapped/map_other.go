//go:build !unix

package mapped

import (
	"io"
	"os"
)

// mapFile reads the file where it cannot be mapped.
func mapFile(file *os.File, size int64) ([]byte, func() error, error) {
	data := make([]byte, size)
	if _, err := io.ReadFull(io.NewSectionReader(file, 0, size), data); err != nil {
		return nil, nil, err
	}
	return data, func() error { return nil }, nil
}

// willNeed has nothing to do: the file was read.
func willNeed([]byte) {}
