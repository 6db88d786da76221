//go:build !race

package gpucheck

const raceDetector = false
