// Package gbnf reads grammars in GBNF, the EBNF of llama.cpp, into grammar rules.
//
// Start with [Compile]. A grammar is a list of rules
//
//	name ::= alternative | alternative
//
// of "literals", [classes], [^complements], . for any character, names of rules and
// (groups), each with * + ? {m} {m,} {,n} or {m,n} after it, and # comments. Names
// are letters, digits, - and _. Literals and classes know the escapes \n \r \t \\ \"
// \[ \] \- \^ \xHH \uHHHH \UHHHHHHHH. The rule root is what a text must match.
//
// A rule ends where the next one begins, so alternatives may go on in the next line.
// Rules may refer to themselves in any place, to the left too. References to tokens
// of a vocabulary, a later addition to GBNF, are not read.
package gbnf
