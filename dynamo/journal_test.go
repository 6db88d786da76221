package dynamo_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/dynctl/dynctl/dynamo"
)

func TestJournal(t *testing.T) {
	l := local(t)
	writer, reader := join(t, l), join(t, l)
	if _, err := writer.Journal("back end", "news"); err == nil {
		t.Error("a journal without a proper name")
	}
	j, err := writer.Journal("backend", "news")
	if err != nil {
		t.Fatal(err)
	}
	for i, word := range []string{"a", "b", "c"} {
		if offset, err := j.Append(t.Context(), word, word); err != nil || offset != uint64(i+1) {
			t.Errorf("append %s: %d %v", word, offset, err)
		}
	}
	if offset, err := j.Append(t.Context(), "b", "other"); err != nil || offset != 2 {
		t.Errorf("append again: %d %v", offset, err)
	}
	late, err := reader.Journal("backend", "news")
	if err != nil {
		t.Fatal(err)
	}
	var words []string
	enough := errors.New("enough")
	err = late.Read(t.Context(), dynamo.From{Offset: 2}, func(r dynamo.Record) error {
		var word string
		if err := r.Decode(&word); err != nil {
			return err
		}
		if words = append(words, word); r.Offset == 3 {
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) || !slices.Equal(words, []string{"b", "c"}) {
		t.Errorf("read %v, %v", words, err)
	}
	// What fails is handed out again; what is done is not.
	ctx, stop := context.WithCancelCause(t.Context())
	var handed []uint64
	failed := false
	err = late.Consume(ctx, "workers", dynamo.From{}, 1, func(_ context.Context, r dynamo.Record) error {
		handed = append(handed, r.Offset)
		if r.Offset == 3 && !failed {
			failed = true
			return errors.New("later")
		}
		if r.Offset == 3 {
			stop(enough)
		}
		return nil
	})
	if !errors.Is(err, enough) || !slices.Equal(handed, []uint64{1, 2, 3, 3}) {
		t.Errorf("handed out %v, %v", handed, err)
	}
	var again []uint64
	ctx, stop = context.WithCancelCause(t.Context())
	if _, err := j.Append(t.Context(), "", "d"); err != nil {
		t.Fatal(err)
	}
	err = late.Consume(ctx, "workers", dynamo.From{}, 1, func(_ context.Context, r dynamo.Record) error {
		again = append(again, r.Offset)
		stop(enough)
		return nil
	})
	if !errors.Is(err, enough) || !slices.Equal(again, []uint64{4}) {
		t.Errorf("handed out later %v, %v", again, err)
	}
	if err := late.Consume(t.Context(), "A group", dynamo.From{}, 1, nil); err == nil {
		t.Error("a group without a proper name")
	}
}
