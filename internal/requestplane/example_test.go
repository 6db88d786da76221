package requestplane_test

import (
	"context"
	"fmt"
	"io"

	"github.com/dynctl/dynctl/internal/handshake"
	"github.com/dynctl/dynctl/internal/requestplane"
)

func Example() {
	key := handshake.RandomKey() // in earnest from the cluster's secret
	server, err := requestplane.ListenTCP(requestplane.ServerConfig{Key: key})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	remove, err := server.Handle("694d9814/generate", func(ctx context.Context, req *requestplane.Request, send func(any) error) error {
		var words []string
		if err := req.Decode(&words); err != nil {
			return err
		}
		for _, w := range words {
			if err := send(w + "!"); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}

	client := requestplane.NewClient(requestplane.ClientConfig{Key: key})
	defer client.Close()
	ctx := context.Background()
	stream, err := client.Call(ctx, server.Addr()+"/694d9814/generate", "request-1", nil, []string{"hello", "world"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer stream.Close()
	for {
		var word string
		err := stream.Recv(ctx, &word)
		if err == io.EOF {
			break
		}
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(word)
	}
	fmt.Println("drained:", remove(ctx) == nil)
	// Output:
	// hello!
	// world!
	// drained: true
}
