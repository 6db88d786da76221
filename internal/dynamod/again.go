package dynamod

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// againVariable holds the time at which a process replaced one that had lost a GPU,
	// in seconds since 1970.
	againVariable = "DYNAMOD_STARTED_AGAIN"
	// againAfter is the least time that a process must have run to be replaced. A GPU
	// that fails sooner would fail again.
	againAfter = time.Minute
)

// again replaces this process by a new one of the same program, with the same arguments.
// After a fault, a GPU is useless to the process that saw it. again returns only if the
// replacement fails or is refused.
func again(environ []string, now time.Time, exec func(program string, args, environ []string) error) error {
	for _, v := range environ {
		text, ok := strings.CutPrefix(v, againVariable+"=")
		if last, err := strconv.ParseInt(text, 10, 64); ok && err == nil && now.Sub(time.Unix(last, 0)) < againAfter {
			return fmt.Errorf("a GPU was lost again within %s, giving up: see dmesg and nvidia-smi", againAfter)
		}
	}
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("start again: %w", err)
	}
	environ = slices.DeleteFunc(slices.Clone(environ), func(v string) bool { return strings.HasPrefix(v, againVariable+"=") })
	environ = append(environ, againVariable+"="+strconv.FormatInt(now.Unix(), 10))
	if err := exec(program, os.Args, environ); err != nil {
		return fmt.Errorf("start again: %w", err)
	}
	return nil
}
