package agent

import (
	"os"
	"strings"
)

// hostID identifies the running machine: Linux' boot id, elsewhere the host name. NIXL
// agents with the same id may use faster transports than TCP.
func hostID() string {
	if b, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil {
		return strings.TrimSpace(string(b))
	}
	name, _ := os.Hostname() // empty means unknown, which is allowed
	return name
}
