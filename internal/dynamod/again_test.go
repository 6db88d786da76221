package dynamod

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestAgain(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	var got []string
	exec := func(program string, args, environ []string) error {
		if program == "" || !slices.Equal(args, os.Args) {
			t.Errorf("%s %v", program, args)
		}
		got = environ
		return nil
	}
	if err := again([]string{"A=1"}, now, exec); err != nil || !slices.Equal(got, []string{"A=1", againVariable + "=1800000000"}) {
		t.Errorf("%v, %v", got, err)
	}
	// Later, the time is that of the last one.
	if err := again(got, now.Add(time.Hour), exec); err != nil || !slices.Equal(got, []string{"A=1", againVariable + "=1800003600"}) {
		t.Errorf("%v, %v", got, err)
	}
	before := got
	if err := again(before, now.Add(time.Hour+againAfter-time.Second), exec); err == nil || !strings.Contains(err.Error(), "lost again within 1m0s") {
		t.Errorf("a GPU that fails at once: %v", err)
	}
	if err := again([]string{againVariable + "=nonsense"}, now, exec); err != nil {
		t.Error(err)
	}
	broken := errors.New("broken")
	if err := again(nil, now, func(string, []string, []string) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
}
