//go:build !race

package clustertest_test

const slowdown = 1
