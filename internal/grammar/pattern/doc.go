// Package pattern turns regular expressions into grammar expressions.
//
// Start with [Compile], for a text that the whole expression must match, or [Parse]
// and [Pattern.Search], for a text that it must match somewhere. The syntax is that
// of Go's package regexp (RE2) plus \uXXXX; which of several matches a search would
// prefer makes no difference here, so lazy repetition is the same as greedy.
//
// Patterns are immutable. Beyond what RE2 refuses (lookaround, back references,
// more than 1000 repetitions), word and line boundaries are refused, and ^ and $
// anywhere but at the ends of an alternative.
package pattern
