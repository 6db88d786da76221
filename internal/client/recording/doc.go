// Package recording keeps snapshots of a cluster in a file and plays them again.
//
// Start with [Record], a source that writes what passes through it, and [Open], which
// reads and checks a file; [File.Play] makes a source of it that needs no cluster.
//
// A recording is a file of JSON lines. Each line is a [cluster.Snapshot], so that the
// output of "dynctl top --samples 60 -o json" is a recording too. A line with
// "since_previous" holds only those KV events and router decisions that the line before
// did not have; every keyframe-th line is complete, so that winding reads few lines.
//
// A [Recorder] and a [Player] each own one goroutine, which Close ends and awaits; a
// Recorder owns its file too. Memory does not grow with a recording: the Recorder keeps
// the newest snapshot, a File 32 bytes for each line. All methods are safe for
// concurrent use.
//
// It deliberately does not compress, and it does not read on from a file that is still
// being written.
package recording
