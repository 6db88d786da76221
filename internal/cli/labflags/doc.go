// Package labflags has the flags of those commands of dynlab that dynctl offers too. Both programs add them
// from here, so that neither has one that the other does not know.
package labflags
