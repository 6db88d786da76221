// Package stats describes measured values: means and quantiles, each with an interval that
// holds the true one with 95 % confidence.
//
// A [Sample] takes values one by one in bounded memory. Its [Summary] has no value that is
// not a number: without values there is none.
package stats
