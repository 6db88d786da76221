// Package pda compiles context-free grammars to byte-level pushdown automata and
// runs them.
//
// Start with [Rules], the grammar as written, [Compile], and [Automaton.Step],
// which reads one byte. Every kind of constraint (regular expression, JSON schema,
// EBNF) becomes rules over sets of code points; Compile turns each rule into a
// deterministic automaton over bytes whose edges may call other rules.
//
// Running one is Earley's algorithm with the chart turned inside out: an [Item] is
// a state plus the [Frame] of the rule that the state belongs to, and a frame knows
// who called the rule. All calls of a rule at one position share a frame, so
// ambiguity, left recursion and empty rules cost polynomial time and need no
// rewriting; a call in tail position inherits the callers of its own frame, so
// right recursion does not grow the stack. Frames never change once the byte that
// made them is read: sets of items may be copied and kept.
//
// States from which no end can be reached do not exist in an Automaton, hence every
// set of items that Step returns can be continued to a complete text.
//
// An Automaton is immutable and safe for concurrent use; a [Scratch] belongs to one
// goroutine. The package starts no goroutines and knows nothing of tokens.
package pda
