package bench

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
)

func testSession(progress io.Writer) *session {
	return &session{opts: Options{Progress: progress}}
}

func TestTakeTurns(t *testing.T) {
	var order []string
	n := 0.0
	c := func(name string) Case {
		return Case{name, func(context.Context) (Sample, error) {
			order = append(order, name)
			n++
			return Sample{"v": n}, nil
		}}
	}
	var progress strings.Builder
	res, err := testSession(&progress).takeTurns(t.Context(), "letters", turns{3, time.Hour}, []Case{c("a"), c("b")})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"a", "b", "b", "a", "a", "b"}; !slices.Equal(order, want) {
		t.Errorf("order %v, want %v", order, want)
	}
	if got, want := res.figure("a", "v"), (Figure{4, 1, 5, 3}); got != want {
		t.Errorf("a: got %+v, want %+v", got, want)
	}
	if got := res.figure("a", "nothing"); got != (Figure{}) {
		t.Errorf("an unknown column gave %+v", got)
	}
	if !strings.Contains(progress.String(), "letters: round 3 of 3") {
		t.Errorf("progress:\n%s", progress.String())
	}
}

func TestTakeTurnsStopsWhenTimeIsUp(t *testing.T) {
	runs := 0
	res, err := testSession(nil).takeTurns(t.Context(), "slow", turns{5, 0}, []Case{{"a", func(context.Context) (Sample, error) {
		runs++
		return Sample{}, nil
	}}})
	if err != nil || runs != 1 || len(res.rounds) != 1 {
		t.Errorf("%d runs, %d rounds, %v: want one complete round", runs, len(res.rounds), err)
	}
}

func TestTakeTurnsFails(t *testing.T) {
	broken := errors.New("broken")
	_, err := testSession(nil).takeTurns(t.Context(), "things", turns{1, 0}, []Case{{"a", func(context.Context) (Sample, error) { return nil, broken }}})
	if !errors.Is(err, broken) || err.Error() != "measure things, a: broken" {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	_, err = testSession(nil).takeTurns(ctx, "things", turns{9, time.Hour}, []Case{
		{"a", func(context.Context) (Sample, error) { cancel(broken); return Sample{}, nil }},
		{"b", func(context.Context) (Sample, error) { t.Error("ran after the end"); return Sample{}, nil }},
	})
	if !errors.Is(err, broken) {
		t.Errorf("got %v, want the cause of the context", err)
	}
}

func TestDerivedColumns(t *testing.T) {
	r := &results{names: []string{"a", "b"}, rounds: []map[string]Sample{
		{"a": {"v": 10}, "b": {"v": 20}},
		{"a": {"v": 10}, "b": {"v": 40}},
		{"a": {"v": 0}, "b": {"v": 40}}, // no ratio
		{"b": {"v": 40}},                // a was not measured
	}}
	r.ratio("b", "ratio", "v", "a", 100)
	r.ratio("a", "ratio", "v", "a", 100)
	r.difference("b", "more", "v", "a")
	r.difference("a", "more", "v", "missing")
	table := r.table("T", "about", []Column{{"v", "value", ""}, {"ratio", "%", ""}, {"more", "+", ""}})
	if got, want := table.Rows[1].Figures["ratio"], (Figure{300, 200, 400, 2}); got != want {
		t.Errorf("ratio: got %+v, want %+v", got, want)
	}
	if got, want := table.Rows[1].Figures["more"], (Figure{30, 10, 40, 3}); got != want {
		t.Errorf("difference: got %+v, want %+v", got, want)
	}
	if got := table.Rows[0].Figures; len(got) != 1 || got["v"].Repetitions != 3 {
		t.Errorf("a has %v, want its value only", got)
	}
	if got := r.table("T", "", nil, "b"); len(got.Rows) != 1 || got.Rows[0].Name != "b" {
		t.Errorf("chosen rows: %+v", got.Rows)
	}
}
