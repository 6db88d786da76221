//go:build !unix

package source

import (
	"errors"
	"os"
)

// openRegular opens a regular file.
func openRegular(root *os.Root, name string) (*os.File, error) {
	if st, err := root.Stat(name); err != nil {
		return nil, err
	} else if !st.Mode().IsRegular() {
		return nil, errors.New("not a regular file")
	}
	return root.Open(name)
}
