//go:build !linux

package device

import "time"

func pause(d time.Duration) { time.Sleep(d) }
