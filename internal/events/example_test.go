package events_test

import (
	"context"
	"fmt"

	"github.com/dynctl/dynctl/internal/events"
)

func Example() {
	bus := events.NewMemory() // or events.NewNATS
	defer bus.Close()
	ctx := context.Background()

	type stored struct {
		Blocks int `json:"blocks"`
	}
	got := make(chan string)
	sub, err := bus.Subscribe(ctx, events.Subject("prod", "*", "kv-events"), func(e events.Event) {
		var s stored
		if err := e.Decode(&s); err != nil {
			got <- err.Error()
			return
		}
		got <- fmt.Sprintf("%s: %d blocks, %d events missed", e.Topic, s.Blocks, e.Missed)
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer sub.Close()
	if err := bus.Publish(ctx, events.Subject("prod", "decode", "kv-events"), stored{Blocks: 12}); err != nil {
		fmt.Println(err)
	}
	fmt.Println(<-got)
	// Output: kv-events: 12 blocks, 0 events missed
}

func ExampleWorkQueue() {
	var queue events.WorkQueue = events.NewMemoryQueue(events.QueueConfig{}) // or NATS.WorkQueue
	ctx, stop := context.WithCancel(context.Background())
	if err := queue.Enqueue(ctx, "request-1/1", []byte("a prompt")); err != nil {
		fmt.Println(err)
	}
	queue.Consume(ctx, 1, func(ctx context.Context, d *events.Delivery) {
		fmt.Printf("%s, attempt %d: %s\n", d.ID, d.Attempt, d.Body)
		if err := d.Ack(ctx); err != nil {
			fmt.Println(err)
		}
		stop()
	})
	// Output: request-1/1, attempt 1: a prompt
}
