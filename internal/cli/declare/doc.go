// Package declare has what commands share that declare a topology: files that are read, the
// difference to what is declared, its effects on workers, and the reason of a change.
package declare
