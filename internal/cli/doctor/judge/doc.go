// Package judge says what is wrong with a machine or a cluster, and what to do: facts in,
// findings out.
//
// It makes no requests and changes nothing. Facts from several requests are structs with a
// method Judge; others are arguments of a function. Where nothing is to be judged the finding
// is skipped, and never guessed.
package judge
