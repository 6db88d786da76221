package protocol

// ModelFilesRequest asks a worker for files of its model card by name.
type ModelFilesRequest struct {
	Names []string `json:"names"`
}

// ModelFile is one item of the answer to a ModelFilesRequest.
type ModelFile struct {
	Name    string `json:"name"`
	Content []byte `json:"content"`
}

// ClearedKV is a worker's answer after it cleared its prefix cache.
type ClearedKV struct {
	Blocks int `json:"blocks"`
}
