// Package kerneltest has the kernels of package kernels as plain Go functions. They stand
// for them in the pretended driver of package fake, and say what they must compute: sums
// are in float64, and results are rounded where the kernels round.
//
// Start with [Kernels].
package kerneltest
