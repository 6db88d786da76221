// Package fleet has what commands say and ask about workers and nodes: which ones a command
// line names, what of them is still in hand, and whether they are safe to stop.
//
// All but the errors is pure.
package fleet
