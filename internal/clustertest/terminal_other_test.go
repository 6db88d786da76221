//go:build !linux

package clustertest_test

import (
	"errors"
	"fmt"
	"os/exec"
)

// runOnTerminal is for Linux.
func runOnTerminal(*exec.Cmd, string, []keystroke) (stdout, stderr string, err error) {
	return "", "", fmt.Errorf("pseudo-terminals: %w", errors.ErrUnsupported)
}
