package inspect

// Report describes a model. Fields that could not be found out are zero.
type Report struct {
	Path     string `json:"path"`
	Format   string `json:"format"` // "safetensors", "gguf v3"
	Servable bool   `json:"servable"`
	// Problems keep the model from being served, Warnings do not.
	Problems []string `json:"problems"`
	Warnings []string `json:"warnings"`

	Family       string     `json:"family"`
	Architecture string     `json:"architecture"`
	Digest       string     `json:"digest"`
	Parameters   Parameters `json:"parameters"`
	DTypes       []DType    `json:"dtypes"`
	Shape        Shape      `json:"shape"`
	Context      int        `json:"context"` // tokens
	SeesImages   bool       `json:"sees_images"`
	Vocabulary   Vocabulary `json:"vocabulary"`
	Vision       *Vision    `json:"vision,omitempty"` // nil for a model of text alone
	Mmproj       string     `json:"mmproj,omitempty"` // file that holds Vision of a GGUF model
	KV           KV         `json:"kv"`
	Weights      Weights    `json:"weights"`
	Memory       []Memory   `json:"memory"`
	Tokenizer    Tokenizer  `json:"tokenizer"`
	Chat         Chat       `json:"chat"`
	Files        []File     `json:"files"`
}

// Parameters counts the weights that are used, by what they are for. A tied head is
// counted with the embedding.
type Parameters struct {
	Total     int64 `json:"total"`
	Embedding int64 `json:"embedding"`
	Attention int64 `json:"attention"`
	MLP       int64 `json:"mlp"`
	Experts   int64 `json:"experts"`
	Norms     int64 `json:"norms"`
	Head      int64 `json:"head"`
	Vision    int64 `json:"vision"`
	Unused    int64 `json:"unused"` // in the file for nothing, not in Total
}

// DType is one type of weights in the files.
type DType struct {
	Name       string `json:"name"`
	Tensors    int    `json:"tensors"`
	Parameters int64  `json:"parameters"`
	Bytes      int64  `json:"bytes"`
}

// Shape is the size of the model's parts.
type Shape struct {
	Layers   int    `json:"layers"`
	Hidden   int    `json:"hidden"`
	Heads    int    `json:"heads"`
	KVHeads  int    `json:"kv_heads"`
	HeadDim  int    `json:"head_dim"`
	FFN      int    `json:"ffn"`
	RoPE     string `json:"rope"`
	TiedHead bool   `json:"tied_head"`
}

// Vision is the size of the part that turns images into rows of text embeddings.
type Vision struct {
	Tower     string `json:"tower"`
	Layers    int    `json:"layers"` // that are computed
	Hidden    int    `json:"hidden"`
	Heads     int    `json:"heads"`
	FFN       int    `json:"ffn"`
	ImageSize int    `json:"image_size"` // pixels of a side of a view; 0 for a tower of images of any size
	PatchSize int    `json:"patch_size"`
	Projector string `json:"projector"`
	Tokens    int    `json:"tokens"` // rows that a whole view takes in a prompt; 0 for a tower of images of any size
	// Square is the number of pixels along a side of what takes a row of a prompt; 0 where views do.
	Square int `json:"square,omitempty"`
}

// Vocabulary compares the rows of the model with what its tokenizer knows.
type Vocabulary struct {
	Rows   int `json:"rows"`
	Tokens int `json:"tokens"`
}

// KV is the memory that tokens take.
type KV struct {
	DType         string `json:"dtype"`
	BytesPerToken int64  `json:"bytes_per_token"`
}

// Weights is the memory of the weights. The workers of a node share one copy.
type Weights struct {
	FileBytes int64 `json:"file_bytes"` // mapped: the system drops and reads them
	// CopiedBytes are kept beside that: what a GGUF file has in another order.
	CopiedBytes int64 `json:"copied_bytes"`
}

// Memory is the need of a number of workers of one node when each has room for one full
// context: weights once, KV blocks for each.
type Memory struct {
	Workers int   `json:"workers"`
	Weights int64 `json:"weights_bytes"`
	KV      int64 `json:"kv_bytes"`
	Total   int64 `json:"total_bytes"`
}

// Tokenizer describes the tokenizer.
type Tokenizer struct {
	Kind    string    `json:"kind"`
	Special []Special `json:"special"`
	EOS     []uint32  `json:"eos"` // all ids that end a text
}

// Special is a token with a role.
type Special struct {
	Role  string `json:"role"` // bos_token, eos_token, ...
	Token string `json:"token"`
	ID    uint32 `json:"id"`
	Known bool   `json:"known"` // the tokenizer has it
}

// Chat lists the abilities of the chat template, found by rendering it.
type Chat struct {
	Template         bool   `json:"template"`
	System           bool   `json:"system"`            // has a place for a system message
	Turns            bool   `json:"turns"`             // takes several turns
	Tools            bool   `json:"tools"`             // shows tool definitions to the model
	ToolResults      bool   `json:"tool_results"`      // takes calls and what tools answered
	GenerationPrompt string `json:"generation_prompt"` // what begins the answer
	// Toggles are template arguments that change what is rendered.
	Toggles []string `json:"toggles"`
}

// File is one of the small files.
type File struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}
