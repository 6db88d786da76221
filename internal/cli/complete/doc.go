// Package complete completes command lines, from the live cluster where it answers soon.
//
// Somebody waits at a prompt: a cluster that does not answer within a second completes
// nothing, and no error is told.
package complete
