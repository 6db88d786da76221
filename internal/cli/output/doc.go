// Package output writes what a command says: a [Printer] knows the form that was asked for,
// an [Answer] has all forms, a [Table] fits the terminal.
//
// Answers go to standard output, everything else to standard error. A printer is for one
// command at a time.
package output
