//go:build !race

package dynamod

const raceDetector = false
