package dynamo_test

import (
	"context"
	"fmt"
	"log"
	"strings"

	"github.com/dynctl/dynctl/dynamo"
)

// echo answers with what the user has said last.
func echo(_ context.Context, p *dynamo.Prompt, emit func(...uint32) error) error {
	turns := strings.Split(p.Text(), "<|im_start|>user\n")
	said, _, _ := strings.Cut(turns[len(turns)-1], "<|im_end|>")
	for _, token := range p.Encode(said)[p.Generated:] {
		if err := emit(token); err != nil {
			return err
		}
	}
	return nil
}

// A worker with an engine of its own. Every frontend of the namespace offers the model.
func ExampleRuntime_ServeModel() {
	ctx := context.Background()
	cluster := dynamo.NewLocal()
	defer cluster.Close()
	worker, err := cluster.Connect(ctx, dynamo.WithName("echo"))
	if err != nil {
		log.Fatal(err)
	}
	defer worker.Close(ctx)
	if err := worker.ServeModel(ctx, dynamo.Model{Name: "echo"}, echo); err != nil {
		log.Fatal(err)
	}

	frontend := startFrontend(cluster) // of a real cluster, dynamod has it
	defer frontend.stop()
	fmt.Println(frontend.chat("echo", "Is there anybody out there?"))
	// Output: Is there anybody out there?
}
