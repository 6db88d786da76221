//go:build !unix

package source

import "testing"

func fifo(*testing.T, string) {}
