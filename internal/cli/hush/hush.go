// Package hush keeps libraries from talking to the terminal while a program starts.
//
// Import it in main and call [Restore] there first. Bubble Tea asks the terminal for
// its colors when it is initialized: every command of a program that links it would
// write escape sequences, and wait up to five seconds for an answer where nobody
// gives one, as on the terminal of a container. With TERM=dumb it does not ask. This
// package imports nothing but os and its path sorts before those that ask, so that
// the language initializes it first.
//
// Its only state is the value that Restore puts back; Restore is for main alone. It
// changes nothing for programs that do not import it.
package hush

import "os"

var (
	before, wasSet = os.LookupEnv("TERM")
	failed         = os.Setenv("TERM", "dumb")
)

// Restore sets TERM back to what the program was started with.
func Restore() {
	switch {
	case failed != nil:
	case wasSet:
		_ = os.Setenv("TERM", before) // as it was accepted before
	default:
		_ = os.Unsetenv("TERM")
	}
}
