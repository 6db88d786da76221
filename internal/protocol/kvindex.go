package protocol

// KVIndexRequest asks a frontend what its prefix index knows. It answers with one
// cluster.KVIndex.
type KVIndexRequest struct {
	// Text, if not empty, is looked up as a prompt of the model, as /v1/completions
	// takes it. Model may be empty if the frontend serves one model.
	Text  string `json:"text"`
	Model string `json:"model"`
}
