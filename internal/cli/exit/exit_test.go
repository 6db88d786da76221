package exit

import (
	"errors"
	"fmt"
	"testing"

	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/store"
)

func TestSeveral(t *testing.T) {
	bad, late := &Failure{Action: "x"}, &Failure{Action: "y", Code: Deadline}
	for _, tc := range []struct {
		name string
		errs []error
		want int
	}{
		{"none", []error{nil, nil}, OK},
		{"one of one", []error{late}, Deadline},
		{"some", []error{nil, bad}, Partly},
		{"all the same", []error{late, late}, Deadline},
		{"all", []error{late, bad}, Failed},
	} {
		if got := CodeOf(Several(tc.errs)); got != tc.want {
			t.Errorf("%s: %d, want %d", tc.name, got, tc.want)
		}
	}
}

func TestExitCodes(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{errors.New("x"), 1},
		{&Failure{Action: "a", Err: errors.New("x")}, 1},
		{&Failure{Action: "a", Err: errors.New("x"), Code: 4}, 4},
		{&UsageError{Text: "x"}, 2},
		{config.Problems{{Text: "x"}}, 2},
		{fmt.Errorf("x: %w", config.ErrNoFile), 2},
		{&Failure{Action: "a", Err: fmt.Errorf("x: %w", client.ErrUnreachable)}, 3},
		{&Failure{Action: "a", Err: fmt.Errorf("x: %w", store.ErrUnavailable)}, 3},
		{Silent{Code: 5}, 5},
		{Silent{Code: 8}, 8},
		{&Stopped{}, 130},
	} {
		if got := CodeOf(tc.err); got != tc.want {
			t.Errorf("%v: %d, want %d", tc.err, got, tc.want)
		}
	}
}
