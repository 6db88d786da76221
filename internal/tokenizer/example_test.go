package tokenizer_test

import (
	"fmt"
	"os"

	"github.com/dynctl/dynctl/internal/tokenizer"
)

func Example() {
	file, err := os.ReadFile("testdata/llama3-like.tokenizer.json")
	if err != nil {
		fmt.Println(err)
		return
	}
	tok, err := tokenizer.Load(file)
	if err != nil {
		fmt.Println(err)
		return
	}
	ids := tok.Encode("café 🙂", true)
	fmt.Printf("%q\n", tok.Decode(ids, true))

	// While a model generates, text comes out as soon as it is certain.
	stream := tok.NewStream(true)
	for _, id := range ids {
		fmt.Printf("%q ", stream.Push(id))
	}
	fmt.Printf("%q\n", stream.Flush())
	// Output:
	// "café 🙂"
	// "" "c" "a" "f" "" "é" " " "" "🙂" ""
}
