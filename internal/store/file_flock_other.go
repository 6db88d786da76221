//go:build !unix

package store

import (
	"errors"
	"os"
)

// tryFlock fails: without flock, processes cannot share files.
func tryFlock(*os.File, bool) error { return errors.ErrUnsupported }

func unflock(*os.File) error { return nil }
