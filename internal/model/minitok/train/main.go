// Command train learns the merges of package minitok from corpus.txt and writes
// tokenizer.json beside that package's source. It is run by go generate.
package main

import (
	_ "embed"
	"fmt"
	"os"

	"github.com/dynctl/dynctl/internal/model/minitok"
)

//go:embed corpus.txt
var corpus string

// vocabulary is the number of tokens, bytes and special tokens included.
const vocabulary = 1280

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "train:", err)
		os.Exit(1)
	}
}

func run() error {
	tokenizer, err := generate()
	if err != nil {
		return err
	}
	return os.WriteFile(fileName, tokenizer, 0o644)
}

const fileName = "tokenizer.json"

// generate gives the content of the file.
func generate() ([]byte, error) {
	merges, err := learn(corpus, vocabulary-minitok.MinVocab)
	if err != nil {
		return nil, err
	}
	return minitok.Marshal(merges)
}
