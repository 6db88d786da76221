package dynamo_test

import (
	"context"
	"fmt"
	"log"

	"github.com/dynctl/dynctl/dynamo"
)

type greeting struct {
	Name string `json:"name"`
}

// A server and a client of one endpoint. Programs of a real cluster call [dynamo.Connect] in
// place of NewLocal, each in a process of its own.
func Example() {
	ctx := context.Background()
	cluster := dynamo.NewLocal()
	defer cluster.Close()

	server, err := cluster.Connect(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close(ctx)
	hello, err := server.Endpoint("dyn://dynamo.backend.hello")
	if err != nil {
		log.Fatal(err)
	}
	_, err = hello.Serve(ctx, dynamo.Unary(func(_ context.Context, g greeting) (string, error) {
		if g.Name == "" {
			return "", dynamo.Errorf(dynamo.InvalidArgument, "who are you?")
		}
		return "Hello, " + g.Name + "!", nil
	}))
	if err != nil {
		log.Fatal(err)
	}

	program, err := cluster.Connect(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer program.Close(ctx)
	endpoint, err := program.Endpoint("dyn://dynamo.backend.hello")
	if err != nil {
		log.Fatal(err)
	}
	client, err := endpoint.Client(ctx, dynamo.RoundRobin)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	for _, name := range []string{"world", ""} {
		answer, err := dynamo.Ask[string](ctx, client, greeting{Name: name})
		fmt.Println(answer, err)
	}
	// Output:
	// Hello, world! <nil>
	//  invalid_argument: who are you?
}
