// Package grammar constrains a model's output to JSON, to a JSON schema, to a regular
// expression, to a list of choices, or to an EBNF grammar in the syntax of llama.cpp
// (GBNF).
//
// Start with [Spec], the constraint of a request, [Compiler], one per model, and
// [Matcher], the state of one sequence. Before each token [Matcher.Mask] returns the
// tokens that may follow. Afterwards [Matcher.Accept] reads the chosen token.
//
// All constraints become one representation, byte-level pushdown automata (package pda).
// Matching is on bytes, so tokens may end inside a character and may span several symbols
// of a grammar.
//
// A mask is assembled from cached parts. For each automaton state, one part holds the
// tokens that fit regardless of what comes after the state's rule, and the places in the
// token trie at which the rule can end inside a token. For each set of such places and
// each state to which a rule can return, another part holds the tokens whose rest fits
// there, and so on up the stack. Parts are made on demand and kept within a bound of
// bytes.
//
// A Compiler and a Grammar are safe for concurrent use. A Matcher belongs to one
// goroutine; its clones may be used by others. The package starts no goroutines.
//
// The package does not sample and does not tokenize. It constrains only the form of the
// output: a number may be wrong, and a string may run until the token limit.
package grammar
