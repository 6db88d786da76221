// Package human writes values as people read them: durations, sizes, counts, names, states.
// All of it is pure.
package human
