package kernels

import "regexp"

var (
	entryOpens = regexp.MustCompile(`(?m)^\.visible \.entry[^{]*\{`)
	olderThan  = regexp.MustCompile(`(?m)^\.target sm_8\d`)
)

// Overlapping makes PTX of compute capability 9.0 whose kernels may be launched while the one
// before them in the stream still runs (programmatic dependent launch), so that they are on
// the multiprocessors by its end. Each waits before it does anything, and lets the next be
// launched when it has: whatever is behind a kernel's wait comes after all kernels before,
// since none leaves the wait out. Launched as always they do what they always did.
func Overlapping(ptx []byte) []byte {
	ptx = olderThan.ReplaceAll(ptx, []byte(".target sm_90"))
	return entryOpens.ReplaceAll(ptx, []byte("$0\n\tgriddepcontrol.wait;\n\tgriddepcontrol.launch_dependents;"))
}
