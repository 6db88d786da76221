// Package posix is the storage backend of package nixl for files: preadv and pwritev
// on goroutines of its own.
//
// Start with [New], to be put into the agent's Config, and [Open], whose File is
// registered as nixl.FILE. A transfer of the agent with itself then moves bytes between
// host memory and the file; the caller never waits for the disk.
//
// The storage owns one goroutine per running transfer until Close. It does not own
// files: a [File] belongs to its opener, who closes it after the region is
// deregistered. Everything is safe to call at the same time.
//
// It does not bypass the page cache (direct is refused by name), does not flush it
// (open with sync for that), and reaches no other machine.
package posix
