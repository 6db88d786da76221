// Package mapped holds weight files in memory without copying them.
//
// Start with [Open] and [File.Map]. A [File] owns its mapping and its open file
// until Close; the bytes of the mapping die with it. They are read-only and may be
// read by many goroutines at once. A file that shrinks under its mapping makes
// reads fault: [File.CheckSize] tells whether that happened, and headers are read
// with ReadAt before anything is mapped.
//
// It knows no format: safetensors and gguf do.
package mapped
