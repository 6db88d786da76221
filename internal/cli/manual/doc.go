// Package manual writes manuals of a command line: pages for man and a reference in
// Markdown.
//
// A [Page] is what there is to say about one command, [Roff] and [Markdown] write it.
// The same pages always give the same bytes: nothing in them depends on the day or the
// machine. The package is pure and knows no particular command.
package manual
