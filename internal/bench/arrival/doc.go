// Package arrival says when the requests of a load arrive.
//
// A [Curve] is a rate over time: constant, a ramp or a sine wave. [New] makes the times of
// one run from it, evenly spaced or as a Poisson process. A [Schedule] is drawn from a seed
// and does not depend on any clock.
package arrival
