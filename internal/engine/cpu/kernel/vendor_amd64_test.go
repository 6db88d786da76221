package kernel

import (
	"os"
	"strings"
	"testing"
)

// TestVendor compares with what the system says.
func TestVendor(t *testing.T) {
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		t.Skip(err)
	}
	if want := strings.Contains(string(info), "GenuineIntel"); intel() != want {
		t.Errorf("intel is %v, want %v", intel(), want)
	}
}
