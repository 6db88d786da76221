// Package grammar constrains what a model generates: to JSON, to a JSON schema, to
// a regular expression, to a list of choices, or to an EBNF grammar in the syntax
// of llama.cpp (GBNF).
//
// Start with [Spec], what a request asks for, [Compiler], one per model, and
// [Matcher], the state of one sequence: before each token [Matcher.Mask] says which
// tokens may follow, after it [Matcher.Accept] reads the one that was chosen.
//
// All constraints become one representation, byte-level pushdown automata (package
// pda); matching is on bytes, so tokens may end inside a character and may span
// several symbols of a grammar. A mask is put together from cached parts. For each
// automaton state one part holds the tokens that fit without regard to what comes
// after the state's rule, and the places in the token trie at which the rule can
// end inside a token; for each set of such places and each state a rule can return
// to, another part holds the tokens whose rest fits there, and so on up the stack.
// Parts are made when they are first needed and kept within a bound of bytes.
//
// A Compiler and a Grammar are safe for concurrent use; a Matcher belongs to one
// goroutine, its clones to others. The package starts no goroutines.
//
// It does not sample, does not tokenize, and does not look at what is generated
// beyond its form: a number may be wrong, a string may run until the token limit.
package grammar
