//go:build !race

package clustertest_test

const raceDetector = false

const slowdown = 1
