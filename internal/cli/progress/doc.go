// Package progress shows how far a long operation is, in one of four ways: redrawn
// on a terminal, as plain lines, as JSON documents, or not at all.
//
// Start with [Screen] (everything there is to show at one moment) and [New] (a
// [Display] for it). The operation makes a new Screen whenever something changed
// and now and then for the clock; displays find out what is new.
//
// A Display starts no goroutine and writes only while one of its methods runs; it
// is not safe for concurrent use. It never moves the cursor above its own lines
// and hides nothing that would have to be restored, so that a program may end at
// any moment.
//
// The package knows nothing of clusters, and prints neither answers nor errors.
package progress
