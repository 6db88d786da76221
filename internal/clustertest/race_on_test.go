//go:build race

package clustertest_test

// raceDetector says that the tests run under the race detector: what would only compute
// something else in the same goroutines is left to a run without it.
const raceDetector = true

// slowdown is how much longer tokens take under the race detector, at least: tests that
// need answers to last for a while ask for so many fewer.
const slowdown = 2
