package model

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
)

// Names of the small files of a checkpoint.
const (
	ConfigName          = "config.json"
	GenerationName      = "generation_config.json"
	TokenizerName       = "tokenizer.json"
	TokenizerConfigName = "tokenizer_config.json"
	ChatTemplateName    = "chat_template.jinja"
	ChatTemplateJSON    = "chat_template.json"
	PreprocessorName    = "preprocessor_config.json"
	ProcessorName       = "processor_config.json"
	// TemplateFolder holds chat templates for other uses, such as tool_use.jinja.
	TemplateFolder = "additional_chat_templates"
)

// maxFile bounds each small file, in bytes; the largest tokenizers have 35 MB.
const maxFile = 256 << 20

// File is one of the small files of a checkpoint, which a frontend needs to read and
// write text for the model.
type File struct {
	Name   string // in the folder, with slashes
	Size   int64
	SHA256 string // hex
	Data   []byte // read-only
}

// readFiles reads those of the files that exist, in a fixed order.
func readFiles(f folder) ([]File, error) {
	var files []File
	more, err := f.templates()
	if err != nil {
		return nil, err
	}
	for _, name := range append(smallFiles(), more...) {
		data, err := f.read(name, maxFile)
		if err != nil {
			return nil, err
		}
		if data == nil {
			continue
		}
		files = append(files, newFile(name, data))
	}
	return files, nil
}

// smallFiles returns the names of those that have fixed ones, in a fixed order.
func smallFiles() []string {
	return []string{ConfigName, GenerationName, TokenizerName, TokenizerConfigName, ChatTemplateName, ChatTemplateJSON, PreprocessorName, ProcessorName}
}

func newFile(name string, data []byte) File {
	sum := sha256.Sum256(data)
	return File{Name: name, Size: int64(len(data)), SHA256: hex.EncodeToString(sum[:]), Data: data}
}

// find returns the content of a file, or nil if the checkpoint has no such file.
func find(files []File, name string) []byte {
	for _, f := range files {
		if f.Name == name {
			return f.Data
		}
	}
	return nil
}

// readEOS reads the ids that end a text, from generation_config.json or else from
// config.json.
func readEOS(files []File, vocab int) ([]uint32, error) {
	for _, name := range []string{GenerationName, ConfigName} {
		content := find(files, name)
		if content == nil {
			continue
		}
		f, err := parseFields(name, content)
		if err != nil {
			return nil, err
		}
		ids := f.ids("eos_token_id")
		if n := len(ids); n > 0 && int(ids[n-1]) >= vocab {
			f.fail(ErrConfig, "eos_token_id", "%d is not below vocab_size %d", ids[n-1], vocab)
		}
		if *f.err != nil || len(ids) > 0 {
			return ids, *f.err
		}
	}
	return nil, nil
}

// readTokenLimit returns the number of ids that tokenizer.json uses: its largest id plus
// one. Without the file it returns the vocabulary's size. It refuses a tokenizer that has
// more ids than the model has rows.
func readTokenLimit(content []byte, vocab int) (int, error) {
	if content == nil {
		return vocab, nil
	}
	var file struct {
		Added []struct {
			ID uint32 `json:"id"`
		} `json:"added_tokens"`
		Model struct {
			Vocab json.RawMessage `json:"vocab"`
		} `json:"model"`
	}
	bad := func(err error) (int, error) {
		return 0, fmt.Errorf("read %s: %w: %w", TokenizerName, ErrConfig, err)
	}
	if err := json.Unmarshal(content, &file); err != nil {
		return bad(err)
	}
	limit := 0
	switch raw := file.Model.Vocab; {
	case len(raw) > 0 && raw[0] == '[': // Unigram: a list, ids are positions
		var list []json.RawMessage
		if err := json.Unmarshal(raw, &list); err != nil {
			return bad(err)
		}
		limit = len(list)
	case len(raw) > 0:
		var ids map[string]uint32
		if err := json.Unmarshal(raw, &ids); err != nil {
			return bad(err)
		}
		for _, id := range ids {
			limit = max(limit, int(id)+1)
		}
	}
	for _, a := range file.Added {
		limit = max(limit, int(a.ID)+1)
	}
	if limit > vocab {
		return bad(fmt.Errorf("uses id %d, vocab_size in %s is %d", limit-1, ConfigName, vocab))
	}
	if limit == 0 {
		return vocab, nil
	}
	return limit, nil
}
