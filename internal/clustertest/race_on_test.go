//go:build race

package clustertest_test

// slowdown is how much longer tokens take under the race detector, at least: tests that
// need answers to last for a while ask for so many fewer.
const slowdown = 4
