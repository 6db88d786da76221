package dynamo_test

import (
	"context"
	"fmt"
	"log"
	"strings"

	"github.com/dynctl/dynctl/dynamo"
)

// An endpoint that streams its answer, and a caller that has enough after three items: the
// handler's context ends then, and send fails.
func ExampleStream() {
	ctx := context.Background()
	cluster := dynamo.NewLocal()
	defer cluster.Close()
	program, err := cluster.Connect(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer program.Close(ctx)
	words, err := program.Endpoint("dyn://dynamo.backend.words")
	if err != nil {
		log.Fatal(err)
	}
	_, err = words.Serve(ctx, dynamo.Stream(func(_ context.Context, text string, send func(string) error) error {
		for word := range strings.FieldsSeq(text) {
			if err := send(word); err != nil {
				return err
			}
		}
		return nil
	}))
	if err != nil {
		log.Fatal(err)
	}

	client, err := words.Client(ctx, dynamo.LeastLoaded)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	n := 0
	for word, err := range dynamo.Call[string](ctx, client, "one two three four five") {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(word)
		if n++; n == 3 {
			break
		}
	}
	// Output:
	// one
	// two
	// three
}
