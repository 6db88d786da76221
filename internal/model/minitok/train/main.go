// Command train learns the merges of package minitok from corpus.txt and writes
// tokenizer.json and words.json beside that package's source. It is run by
// go generate.
package main

import (
	_ "embed"
	"encoding/json"
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
	files, err := generate()
	if err != nil {
		return err
	}
	for name, content := range files {
		if err := os.WriteFile(name, content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// generate gives the content of the two files.
func generate() (map[string][]byte, error) {
	learned, err := learn(corpus, vocabulary-minitok.MinVocab)
	if err != nil {
		return nil, err
	}
	tokenizer, err := minitok.Marshal(learned.merges)
	if err != nil {
		return nil, err
	}
	words, err := json.MarshalIndent(learned.wholeWords(), "", " ")
	if err != nil {
		return nil, err
	}
	return map[string][]byte{"tokenizer.json": tokenizer, "words.json": append(words, '\n')}, nil
}
