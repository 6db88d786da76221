//go:build !linux

package sharedmem

import "errors"

func populate([]byte) error { return errors.ErrUnsupported }
