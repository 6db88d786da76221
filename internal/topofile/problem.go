package topofile

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/dynctl/dynctl/internal/config"
)

// Problem is one thing that is wrong in a file.
type Problem struct {
	File string // as it was named
	// Line and Column count from 1; 0 means that the place is not known.
	Line, Column int
	Path         string // of the field; empty for the file as a whole
	Text         string // what is wrong, and what is expected
}

// Error returns "file:line:column: path: what is wrong".
func (p Problem) Error() string {
	at := p.File
	if p.Line > 0 {
		at += ":" + strconv.Itoa(p.Line)
		if p.Column > 0 {
			at += ":" + strconv.Itoa(p.Column)
		}
	}
	parts := []string{}
	for _, part := range []string{at, p.Path, p.Text} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, ": ")
}

// Problems is returned by [Parse]: all that is wrong, in the order of the file.
type Problems []Problem

// Error returns one line for each problem.
func (ps Problems) Error() string { return config.Lines(ps) }

func (ps Problems) sorted() Problems {
	slices.SortStableFunc(ps, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return ps
}

func numberList(numbers []int) string {
	words := make([]string, len(numbers))
	for i, n := range numbers {
		words[i] = fmt.Sprint(n)
	}
	return strings.Join(words, ", ")
}
