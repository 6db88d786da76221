//go:build !race

package amxtest

const raceDetector = false
