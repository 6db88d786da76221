//go:build !race

package kernels_test

const raceDetector = false
