// Package process runs a server that others wrote, with all the processes that it starts, as
// long as this process lives and no longer.
//
// [Plan] takes a command line apart and says what is added to it for the server's role,
// and [Start] starts it. A [Process] owns the goroutines that read the server's output and
// wait for its end; its methods may be called concurrently.
//
// Nothing of a server is left behind: it has a process group of its own, and a mark in its
// environment that its children inherit. When it ends, or is stopped, all that are in the
// group or carry the mark are killed. A watcher, which is a shell that waits for this process
// to end, does the same after kill -9. On Linux the kernel kills the first process, too.
package process
