// Package command makes cobra commands from descriptions.
//
// A [Verb] describes a command: its help, its arguments, and a function that completes its
// options. [App.Command] reads the settings, begins a session, refuses changes where they are
// refused, and runs the options, which are a [Runner]. Tests put a function into App.Do and
// look at the options instead.
package command
