package device

import (
	"time"

	"golang.org/x/sys/unix"
)

// pause lets the thread sleep. The runtime's timers would do, but in a process that has
// nothing else to do they wake it a millisecond late, which is as long as a step may take.
func pause(d time.Duration) {
	ts := unix.NsecToTimespec(int64(d))
	_ = unix.Nanosleep(&ts, nil) // a signal ends it early, which does no harm
}
